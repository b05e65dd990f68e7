#include "server/rank_streams.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "tests/server/test_worker.h"

namespace sluice {
namespace {

TEST(RankStreamsTest, AStreamTooManyClosesTheOldestOfItsRankAlone) {
  RankStreams streams;
  const RankStreams::Rank rank{"job-1", 7, 0}, other{"job-1", 7, 1};
  std::deque<std::shared_ptr<Stream>> opened;  // its elements stay where they are
  const auto open = [&](const RankStreams::Rank& of) {
    opened.push_back(std::make_shared<FakeStream>());
    return streams.Open(of, opened.size(), opened.back());
  };
  for (size_t i = 0; i < RankStreams::kMaxPerRank; ++i) {
    EXPECT_EQ(open(rank), nullptr);
    EXPECT_EQ(open(other), nullptr);
  }
  EXPECT_EQ(open(rank), opened[0]);
  EXPECT_EQ(open(rank), opened[2]);
  EXPECT_EQ(open({"job-1", 8, 0}), nullptr) << "another instance of the job";
}

TEST(RankStreamsTest, StreamsThatHaveEndedLeaveRoom) {
  RankStreams streams;
  const RankStreams::Rank rank{"job-1", 7, 0};
  for (uint64_t number = 1; number < 100; ++number) {
    EXPECT_EQ(streams.Open(rank, number, std::make_shared<FakeStream>()), nullptr);
    if (number >= RankStreams::kMaxPerRank)
      streams.Ended(rank, number - RankStreams::kMaxPerRank + 1);
  }
  streams.Ended(rank, 1000);
}

}  // namespace
}  // namespace sluice
