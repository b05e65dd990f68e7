// Where NCCL may listen: nothing of it is called before the cards show where the ranks are.
#include <gmock/gmock.h>

#include "tests/common/collective/rank_threads.h"
#include "tests/model/wide_deep/cuda/simulated/nccl_calls.h"

namespace sluice {
namespace {

using cuda::simulated::NcclCalls;
using ::testing::HasSubstr;

TEST(NcclGroupTest, NothingListensUntilTheCardsAreKnownAndThenOnLoopback) {
  if (!CanMake("nccl", 2)) GTEST_SKIP() << "this build has no NCCL";
  RankThreads group("nccl", 2);
  const std::vector<std::string> cards = group.Listen(1);
  EXPECT_EQ(NcclCalls::Get().Ids(), 0);
  group.ExpectOk([&](uint32_t r, Collective& c) { return c.Join(1, cards, r); });
  EXPECT_EQ(NcclCalls::Get().Ids(), 1) << "of the first rank";
  EXPECT_EQ(NcclCalls::Get().Groups(), 2);
  EXPECT_EQ(NcclCalls::Get().Interface(), "=lo");
}

TEST(NcclGroupTest, AGroupThatMayNotLeaveItsHostIsRefusedBeforeNcclIsCalled) {
  if (!CanMake("nccl", 2)) GTEST_SKIP() << "this build has no NCCL";
  const int ids = NcclCalls::Get().Ids(), groups = NcclCalls::Get().Groups();
  std::vector<std::unique_ptr<Collective>> ranks;
  std::vector<std::string> cards;
  for (const char* host : {"a", "b"}) {
    CollectiveOptions options;
    options.host_for_test = host;
    options.why_no_address = "set plain_collective";
    options.cuda_device = static_cast<int>(ranks.size());
    ranks.push_back(*MakeCollective("nccl", options));
    cards.push_back(*ranks.back()->Listen(1, static_cast<uint32_t>(cards.size()), 2));
  }
  for (uint32_t r = 0; r < 2; ++r) {
    const absl::Status refused = ranks[r]->Join(1, cards, r);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("plain_collective"));
  }
  EXPECT_EQ(NcclCalls::Get().Ids(), ids);
  EXPECT_EQ(NcclCalls::Get().Groups(), groups);
}

TEST(NcclGroupTest, AProcessWhoseNcclIsOnLoopbackJoinsNoGroupOfSeveralHosts) {
  if (!CanMake("nccl", 2)) GTEST_SKIP() << "this build has no NCCL";
  RankThreads("nccl", 2).Join();
  const int ids = NcclCalls::Get().Ids(), groups = NcclCalls::Get().Groups();
  RankThreads apart("nccl", 2, {}, {"a", "b"});
  const std::vector<std::string> cards = apart.Listen(1);
  for (const absl::Status& refused :
       apart.Run([&](uint32_t r, Collective&c) { return c.Join(1, cards, r); })) {
    EXPECT_FALSE(refused.ok());
  }
  EXPECT_EQ(NcclCalls::Get().Ids(), ids);
  EXPECT_EQ(NcclCalls::Get().Groups(), groups);
}

}  // namespace
}  // namespace sluice
