#include "common/collective/make_collective.h"

#include "tests/common/collective/rank_threads.h"

namespace sluice {
namespace {

CollectiveOptions WithAddress() {
  CollectiveOptions options;
  options.bind_address = "127.0.0.1";
  return options;
}

bool HasGloo() { return !absl::IsUnimplemented(MakeCollective("gloo", WithAddress()).status()); }

TEST(MakeCollectiveTest, UnknownEnginesAndImpossibleOptionsAreRefused) {
  EXPECT_EQ(MakeCollective("mpi", WithAddress()).status().code(),
            absl::StatusCode::kInvalidArgument);
  CollectiveOptions options = WithAddress();
  options.timeout = absl::ZeroDuration();
  EXPECT_EQ(MakeCollective("shm", options).status().code(), absl::StatusCode::kInvalidArgument);
  for (const uint32_t comm_num : {0, 9}) {
    options = WithAddress();
    options.comm_num = comm_num;
    EXPECT_EQ(MakeCollective("shm", options).status().code(), absl::StatusCode::kInvalidArgument);
  }
  if (!HasGloo()) return;
  EXPECT_EQ(MakeCollective("gloo", {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeCollective("two_level", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MakeCollectiveTest, NcclSaysWhatIsMissing) {
  // Without a device, with one that does not exist, or in a build without NCCL.
  for (const int device : {-1, 99}) {
    CollectiveOptions options = WithAddress();
    options.cuda_device = device;
    const absl::Status status = MakeCollective("nccl", options).status();
    EXPECT_TRUE(absl::IsUnimplemented(status) || absl::IsNotFound(status) ||
                (device < 0 && absl::IsFailedPrecondition(status)))
        << status;
  }
}

TEST(MakeCollectiveTest, AutoUsesSharedMemoryOnOneHostAlsoWithoutAnAddress) {
  RankThreads group("auto", 3, WithAddress());
  EXPECT_STREQ(group.rank(0).name(), "auto");
  group.Join();
  EXPECT_STREQ(group.rank(0).name(), "shm");
  group.ExpectOk([](uint32_t, Collective& c) { return c.Barrier(); });

  auto alone = MakeCollective("auto", {});
  ASSERT_TRUE(alone.ok()) << alone.status();
  auto card = (*alone)->Listen(1, 0, 1);
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_TRUE((*alone)->Join(1, {*card}, 0).ok());
}

TEST(MakeCollectiveTest, AutoUsesGlooBetweenSingleRanksAndTwoLevelsOtherwise) {
  if (!HasGloo()) GTEST_SKIP() << "this build has no Gloo";
  RankThreads apart("auto", 2, WithAddress(), {"a", "b"});
  apart.Join();
  EXPECT_STREQ(apart.rank(1).name(), "gloo");
  apart.ExpectOk([](uint32_t, Collective& c) { return c.Barrier(); });

  RankThreads mixed("auto", 3, WithAddress(), {"a", "b", "a"});
  mixed.Join();
  for (uint32_t r = 0; r < 3; ++r) EXPECT_STREQ(mixed.rank(r).name(), "two_level");
  mixed.ExpectOk([](uint32_t, Collective& c) { return c.Barrier(); });
}

TEST(MakeCollectiveTest, AutoSaysWhichRankCannotReachOtherHosts) {
  std::vector<std::unique_ptr<Collective>> ranks;
  std::vector<std::string> cards;
  for (const char* host : {"a", "b"}) {
    CollectiveOptions options;
    options.host_for_test = host;
    ranks.push_back(*MakeCollective("auto", options));
    cards.push_back(*ranks.back()->Listen(1, cards.size(), 2));
  }
  EXPECT_EQ(ranks[0]->Join(1, cards, 0).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MakeCollectiveTest, SharedMemoryRefusesRanksOfOtherHosts) {
  RankThreads group("shm", 2, {}, {"a", "b"});
  const std::vector<std::string> cards = group.Listen(1);
  EXPECT_EQ(group.rank(0).Join(1, cards, 0).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
