#include "server/requests/parked_pulls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kNoBound = SIZE_MAX;

ParkedPull PullOf(uint64_t step, uint64_t stream = 0) {
  ParkedPull pull;
  pull.step = step;
  pull.caller.stream = stream;
  return pull;
}

std::vector<uint64_t> Steps(const std::vector<ParkedPull>& pulls) {
  std::vector<uint64_t> steps;
  for (const ParkedPull& p : pulls) steps.push_back(p.step);
  return steps;
}

TEST(ParkedPullsTest, TakesWantedPullsInTheOrderOfArrival) {
  ParkedPulls parked(10, kNoBound);
  for (uint64_t step : {5, 2, 9, 1}) parked.Park(PullOf(step));
  EXPECT_EQ(parked.oldest()->step, 5u);
  EXPECT_THAT(parked.Take([](const ParkedPull&) { return false; }), IsEmpty());
  EXPECT_THAT(Steps(parked.Take([](const ParkedPull& p) { return p.step != 2 && p.step != 9; })),
              ElementsAre(5, 1));
  EXPECT_EQ(parked.oldest()->step, 2u);
  EXPECT_THAT(Steps(parked.TakeAll()), ElementsAre(2, 9));
  EXPECT_EQ(parked.size(), 0u);
  EXPECT_EQ(parked.oldest(), nullptr);
}

TEST(ParkedPullsTest, OneRankCannotUseUpTheRoomOfOthers) {
  ParkedPulls parked(2, kNoBound);
  const auto park = [&](uint32_t rank) {
    ParkedPull pull;
    pull.caller.rank = rank;
    parked.Park(std::move(pull));
  };
  park(1);
  park(0);
  EXPECT_FALSE(parked.FullFor(1, 0));
  park(1);
  EXPECT_TRUE(parked.FullFor(1, 0));
  EXPECT_FALSE(parked.FullFor(0, 0));
  EXPECT_FALSE(parked.FullFor(2, 0));
  bool taken = false;
  parked.Take(
      [&](const ParkedPull& p) { return p.caller.rank == 1 && !std::exchange(taken, true); });
  EXPECT_FALSE(parked.FullFor(1, 0));
}

TEST(ParkedPullsTest, TheBytesOfOneRankAreBounded) {
  ParkedPulls parked(10, 100);
  const auto park = [&](uint32_t rank, size_t bytes) {
    ParkedPull pull;
    pull.caller.rank = rank;
    pull.bytes = bytes;
    parked.Park(std::move(pull));
  };
  EXPECT_FALSE(parked.FullFor(0, 1000)) << "one pull always has room";
  park(0, 60);
  EXPECT_FALSE(parked.FullFor(0, 40));
  EXPECT_TRUE(parked.FullFor(0, 41));
  park(1, 90);
  EXPECT_FALSE(parked.FullFor(0, 40)) << "another rank has room of its own";
  EXPECT_TRUE(parked.FullFor(1, 11));
  parked.Take([](const ParkedPull& p) { return p.caller.rank == 0; });
  park(0, 30);
  EXPECT_FALSE(parked.FullFor(0, 70)) << "the bytes of answered pulls are free again";
  parked.TakeAll();
  park(0, 10);
  EXPECT_FALSE(parked.FullFor(0, 90));
  EXPECT_TRUE(parked.FullFor(0, 91));
}

TEST(ParkedPullsTest, AgreesWithAPlainVector) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    ParkedPulls parked(1000, kNoBound);
    std::vector<uint64_t> model;
    for (int i = 0; i < 100; ++i) {
      const uint64_t n = random() % 7;
      if (random() % 3 != 0) {
        parked.MakeRoom();
        parked.Park(PullOf(i, n));
        model.push_back(i * 10 + n);
      } else {
        std::vector<uint64_t> wanted, kept;
        for (uint64_t m : model) (m % 10 == n ? wanted : kept).push_back(m / 10);
        EXPECT_EQ(Steps(parked.Take([n](const ParkedPull& p) { return p.caller.stream == n; })),
                  wanted);
        std::vector<uint64_t> rest;
        for (uint64_t m : model) {
          if (m % 10 != n) rest.push_back(m);
        }
        model = rest;
      }
      ASSERT_EQ(parked.size(), model.size());
    }
  }
}

}  // namespace
}  // namespace sluice
