#include "server/tables/job_copies.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/server/replicated_job.h"

namespace sluice {
namespace {

// The copies of pserver 0, kept by pserver 1.
class JobCopiesTest : public testing::Test {
 protected:
  JobCopiesTest()
      : spec_(Replicated(1)), copies_(LayoutsOf(spec_), UpdatePolicy(), [this] { ++changes_; }) {}

  // A route of this generation, in which `follower` keeps the copies of pserver 0.
  void TakeRoute(uint64_t generation, uint32_t follower) {
    spec_.mutable_route()->set_generation(generation);
    spec_.set_follower(0, follower);
    copies_.TakeSpec(spec_, /*self=*/1);
  }
  JobCopies::Held Begin() {
    const auto held = copies_.Begin(HelloOf(spec_));
    EXPECT_TRUE(held.ok()) << held.status();
    return held.value();
  }
  HostedJob Report() {
    HostedJob report;
    copies_.FillReport(&report);
    return report;
  }
  static bool IsSealed(const JobCopies::Held& held) {
    return absl::IsAborted(held.copy->Apply(ReplicaHeader(), PayloadReader()));
  }

  JobSpec spec_;
  int changes_ = 0;  // calls of on_change
  JobCopies copies_;
};

TEST_F(JobCopiesTest, OnlyAPrimaryThatThisPserverFollowsMayBegin) {
  ReplicaHello hello = HelloOf(spec_);
  EXPECT_TRUE(absl::IsInvalidArgument(copies_.Begin(hello).status())) << "there is no route yet";
  TakeRoute(1, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(copies_.Begin(hello).status()));
  TakeRoute(2, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(copies_.Begin(hello).status())) << "an older route";
  hello.set_generation(2);
  EXPECT_TRUE(copies_.Begin(hello).ok());
  hello.set_pserver(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(copies_.Begin(hello).status())) << "this pserver";
  hello.set_pserver(2);
  EXPECT_TRUE(absl::IsInvalidArgument(copies_.Begin(hello).status())) << "there is none";
  EXPECT_EQ(Report().copies_size(), 1);
}

TEST_F(JobCopiesTest, ASecondStreamReplacesIncompleteCopies) {
  TakeRoute(1, 1);
  const JobCopies::Held first = Begin();
  const JobCopies::Held second = Begin();
  EXPECT_TRUE(IsSealed(first));
  EXPECT_FALSE(IsSealed(second));
  EXPECT_TRUE(absl::IsFailedPrecondition(copies_.Complete(first)));
  copies_.EndOfStream(first);
  EXPECT_EQ(Report().copies_size(), 1) << "the first stream ends late";
  EXPECT_EQ(changes_, 0);
  EXPECT_TRUE(copies_.Complete(second).ok());
}

TEST_F(JobCopiesTest, OnlyCompleteCopiesOutliveTheirStream) {
  TakeRoute(1, 1);
  const JobCopies::Held incomplete = Begin();
  copies_.EndOfStream(incomplete);
  EXPECT_EQ(Report().copies_size(), 0);
  EXPECT_TRUE(IsSealed(incomplete));
  EXPECT_EQ(changes_, 1);

  const JobCopies::Held held = Begin();
  const auto block = MakeDenseShard(LayoutsOf(spec_)[0], 0, UpdatePolicy());
  for (const Message& message : ImageOf(block.get())) {
    DecodedReplica decoded = DecodeReplica(message).value();
    ASSERT_TRUE(held.copy->Apply(decoded.header, std::move(decoded.payload)).ok());
  }
  EXPECT_FALSE(Report().copies(0).complete());
  EXPECT_TRUE(copies_.Complete(held).ok());
  EXPECT_EQ(changes_, 2);
  copies_.EndOfStream(held);
  ASSERT_EQ(Report().copies_size(), 1);
  const ShardCopies copies = Report().copies(0);
  EXPECT_EQ(copies.pserver(), 0u);
  EXPECT_EQ(copies.generation(), 1u);
  EXPECT_TRUE(copies.complete());
  EXPECT_EQ(copies.bytes(), block->reserved_bytes());
  EXPECT_FALSE(IsSealed(held));
  EXPECT_TRUE(absl::IsFailedPrecondition(copies_.Begin(HelloOf(spec_)).status()));
  EXPECT_EQ(changes_, 2);
}

TEST_F(JobCopiesTest, ARouteWithAnotherFollowerDropsTheCopies) {
  TakeRoute(1, 1);
  const JobCopies::Held held = Begin();
  ASSERT_TRUE(copies_.Complete(held).ok());
  TakeRoute(2, 1);
  EXPECT_EQ(Report().copies_size(), 1) << "the same follower";
  TakeRoute(3, 0);
  EXPECT_EQ(Report().copies_size(), 0);
  EXPECT_TRUE(IsSealed(held)) << "a message under way must not be confirmed";
  EXPECT_TRUE(absl::IsFailedPrecondition(copies_.Complete(held)));
  EXPECT_TRUE(absl::IsFailedPrecondition(copies_.Seal(HelloOf(spec_, /*read=*/true)).status()));
}

TEST_F(JobCopiesTest, OnlyTheNewestSuccessorReadsAndDropsTheSealedCopies) {
  TakeRoute(1, 1);
  const JobCopies::Held held = Begin();
  EXPECT_TRUE(absl::IsNotFound(copies_.Seal(HelloOf(spec_, /*read=*/true)).status()));
  EXPECT_FALSE(IsSealed(held)) << "they are not complete";
  ASSERT_TRUE(copies_.Complete(held).ok());
  TakeRoute(2, 1);
  const auto read = copies_.Seal(HelloOf(spec_, /*read=*/true));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->copy, held.copy);
  EXPECT_TRUE(IsSealed(held));
  EXPECT_TRUE(copies_.CheckReader(held, 2).ok());
  TakeRoute(3, 1);
  ASSERT_TRUE(copies_.Seal(HelloOf(spec_, /*read=*/true)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(copies_.CheckReader(held, 2)));
  EXPECT_TRUE(absl::IsFailedPrecondition(copies_.DropRead(held, 2)));
  EXPECT_EQ(Report().copies_size(), 1);
  EXPECT_TRUE(copies_.DropRead(held, 3).ok());
  EXPECT_EQ(Report().copies_size(), 0);
  EXPECT_TRUE(absl::IsNotFound(copies_.DropRead(held, 3)));
  EXPECT_EQ(changes_, 1) << "the successor reports soon itself";
}

TEST_F(JobCopiesTest, DroppedCopiesAreReportedOnce) {
  TakeRoute(1, 1);
  const JobCopies::Held held = Begin();
  copies_.Drop(held);
  copies_.Drop(held);
  EXPECT_EQ(changes_, 1);
  EXPECT_TRUE(IsSealed(held));
  EXPECT_EQ(Report().copies_size(), 0);
  // The callback may be null.
  JobCopies silent(LayoutsOf(spec_), UpdatePolicy(), nullptr);
  silent.TakeSpec(spec_, /*self=*/1);
  const auto copies = silent.Begin(HelloOf(spec_));
  ASSERT_TRUE(copies.ok()) << copies.status();
  EXPECT_TRUE(silent.Complete(*copies).ok());
  silent.Drop(*copies);
  HostedJob report;
  silent.FillReport(&report);
  EXPECT_EQ(report.copies_size(), 0);
}

}  // namespace
}  // namespace sluice
