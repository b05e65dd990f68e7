// Checks what the scheduler orders and asks of a job: routes, fences, commits of lost ranks,
// checkpoints, reports and the end.
#include "server/tables/job_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/job_with_workers.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class JobTablesTest : public JobWithWorkers {};

TEST_F(JobTablesTest, ReportsBytesInUseAndBytesReserved) {
  Open(MakeSpec(1, true, 0));  // SGD: no state. 4 dense elements; rows of 24 + 4 x 3, padded to 40
  Push(0, {.sequence = 1, .weight = 1, .dense = {1, 2, 3, 4}, .rows = {{5, {1, 0, -1}}}});
  Push(0, {.sequence = 2, .weight = 1, .dense = {1, 2, 3, 4}, .rows = {{6, {1, 0, -1}}}});
  const HostedJob report = job_->Report();
  uint64_t bytes = 0, reserved = 0;
  for (const TableStatus& table : report.tables()) {
    const bool sparse = table.kind() == TableConfig::SPARSE;
    EXPECT_EQ(table.bytes(), sparse ? 2u * 40 : 4u * 4) << table.name();
    EXPECT_GE(table.reserved_bytes(), sparse ? 2u * 40 + 64u * 8 : 4u * 4) << table.name();
    bytes += table.bytes();
    reserved += table.reserved_bytes();
  }
  EXPECT_EQ(report.bytes(), bytes);
  EXPECT_EQ(report.reserved_bytes(), reserved);
}

TEST_F(JobTablesTest, StatusNamesTheMissingCommitAndTheSlowestRank) {
  Open(MakeSpec(2, false, 0));
  for (uint64_t step = 1; step <= 2; ++step) {
    for (int r = 0; r < 2; ++r) Push(r, {.sequence = step, .dense = {2, 2, 2, 2}});
    worker(0).Commit(step);
    clock_.Advance(absl::Milliseconds(2100));
    EXPECT_EQ(job_->Report().waiting_for(), absl::StrCat("commit ", step, " of rank 1 (2.1 s)"));
    worker(1).Commit(step);
    EXPECT_EQ(job_->Report().waiting_for(), "");
  }
  EXPECT_EQ(job_->Report().slowest_rank(), 1u);
  EXPECT_NEAR(job_->Report().slowest_wait_s(), 4.2, 1e-9);
}

TEST_F(JobTablesTest, RefusalOfAnotherGenerationNamesTheCurrentOne) {
  Open(MakeSpec(1, true, 0));
  JobSpec spec = spec_;
  spec.mutable_route()->set_generation(4);
  ASSERT_TRUE(job_->UpdateRoute(spec).ok());
  const Answer& answer = Push(0, {.sequence = 1, .dense = {1, 1, 1, 1}});
  EXPECT_EQ(answer.code, 9);
  EXPECT_EQ(answer.generation, 4u);
  const Answer& now = Push(0, {.sequence = 1, .dense = {1, 1, 1, 1}, .generation = 4});
  EXPECT_EQ(now.code, 0);
  spec.mutable_route()->set_generation(5);
  spec.mutable_route()->add_pservers("127.0.0.1:7001");
  spec.mutable_route()->mutable_tables(1)->set_owner(2, 1);
  EXPECT_THAT(std::string(job_->UpdateRoute(spec).message()),
              AllOf(HasSubstr("shard 2"), HasSubstr("'e'")));
}

// The spec of a later generation in which the ranks' lives begin with these incarnations.
JobSpec Later(const JobSpec& spec, std::vector<uint64_t> incarnations) {
  JobSpec later = spec;
  later.mutable_route()->set_generation(spec.route().generation() + 1);
  for (const uint64_t one : incarnations) later.add_incarnations(one);
  return later;
}

TEST_F(JobTablesTest, ReportsTheLeastThatItsShardsHoldOfAFencedLife) {
  Open(MakeSpec(2, true, 0));
  Push(0, {.sequence = 1, .dense = {1, 1, 1, 1}, .task_id = 4, .task_end = 10});
  Push(0, {.sequence = 2, .dense = {1, 1, 1, 1}, .task_id = 4, .task_end = 20});
  // The third frame has reached one shard only.
  PushPart part;
  part.rows = 4;
  part.values = {1, 1, 1, 1};
  FrameId frame{0, 1, 3, 1, {}};
  frame.position.task_id = 5;
  ASSERT_EQ(job_->shard_for_test(0, 0)->Apply(frame, &part).status, PART_OK);
  EXPECT_EQ(job_->Report().ranks_size(), 0) << "no rank was replaced";
  ASSERT_TRUE(job_->UpdateRoute(Later(spec_, {2, 1})).ok());
  const HostedJob report = job_->Report();
  EXPECT_EQ(report.generation(), 2u);
  ASSERT_EQ(report.ranks_size(), 2);
  EXPECT_EQ(report.ranks(0).incarnation(), 1u);
  EXPECT_EQ(report.ranks(0).sequence(), 2u);
  EXPECT_EQ(report.ranks(0).task_id(), 4u);
  EXPECT_EQ(report.ranks(0).task_end(), 20u);
  EXPECT_EQ(report.ranks(1).sequence(), 0u);
  // The fenced life gets nothing more in, under either generation; the others need the new one.
  EXPECT_EQ(Push(0, {.sequence = 3, .dense = {8, 8, 8, 8}}).code, 10);
  EXPECT_EQ(Push(0, {.sequence = 3, .dense = {8, 8, 8, 8}, .generation = 2}).code, 10);
  EXPECT_EQ(Push(1, {.sequence = 1, .dense = {8, 8, 8, 8}}).code, 9);
  worker(1).set_generation(2);
  EXPECT_THAT(worker(1).Dense(), ElementsAre(-0.5f, -0.5f, -0.5f, -0.5f));
  TestWorker next(spec_, job_, 0, 2);
  next.Push({.sequence = 1, .dense = {1, 1, 1, 1}, .generation = 2});
  EXPECT_THAT(worker(1).Dense(), ElementsAre(-1, -1, -1, -1));
  EXPECT_EQ(job_->Report().ranks(0).sequence(), 2u) << "what was held when it was fenced";
}

TEST_F(JobTablesTest, IncarnationsMustFitTheRanks) {
  Open(MakeSpec(2, true, 0));
  EXPECT_TRUE(absl::IsInvalidArgument(job_->UpdateRoute(Later(spec_, {2}))));
  EXPECT_EQ(job_->generation(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(
      JobTables::Open(Later(spec_, {2}), kSelf, TestResources(&clock_)).status()));
}

TEST_F(JobTablesTest, ALaterRouteDoesNotChangeTheNumberOfRanks) {
  Open(MakeSpec(2, true, 0));
  JobSpec more = Later(spec_, {2, 2, 2});
  more.set_worker_num(3);
  EXPECT_TRUE(absl::IsInvalidArgument(job_->UpdateRoute(more)));
  EXPECT_EQ(job_->generation(), 1u);
}

TEST_F(JobTablesTest, ATableThatIsOpenedLateFencesEarlierLivesToo) {
  const JobSpec spec = Later(MakeSpec(1, true, 0), {5});
  job_ = JobTables::Open(spec, kSelf, TestResources(&clock_)).value();
  EXPECT_EQ(TestWorker(spec, job_, 0, 4).hello().code, 10);
  EXPECT_EQ(TestWorker(spec, job_, 0, 5).hello().code, 0);
}

TEST_F(JobTablesTest, ASuccessorAwaitsTheRanksOnlyIfItHasShards) {
  JobSpec spec = Later(MakeSpec(2, true, 0), {3, 4});
  spec.mutable_takeover();
  EXPECT_THAT(
      JobTables::Open(spec, kSelf, TestResources(&clock_)).value()->Report().awaited_ranks(),
      ElementsAre(0, 1));
  // Ranks never speak to a pserver without shards.
  spec.mutable_route()->set_pservers(0, "127.0.0.1:7001");
  spec.mutable_route()->add_pservers(kSelf);
  EXPECT_THAT(
      JobTables::Open(spec, kSelf, TestResources(&clock_)).value()->Report().awaited_ranks(),
      IsEmpty());
}

TEST_F(JobTablesTest, FencingAnswersPullsThatWaitedForTheLostRank) {
  JobSpec spec = MakeSpec(2, true, 0);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_max_staleness(0);
  Open(spec);
  worker(0).PullDense();
  Push(1, {.sequence = 1, .dense = {1, 1, 1, 1}});
  const uint64_t waits = worker(1).PullDense();
  EXPECT_FALSE(worker(1).Get(waits).done);
  ASSERT_TRUE(job_->UpdateRoute(Later(spec_, {2, 1})).ok());
  EXPECT_TRUE(worker(1).Get(waits).done);
  EXPECT_EQ(worker(1).Get(waits).code, 0);
  EXPECT_EQ(worker(1).Get(waits).generation, 2u);
}

// Rank 0 has committed the first step at one of two pservers and dies. Its next life commits it
// again at both.
TEST_F(JobTablesTest, CommitOfALostLifeIsRepeatedWhereItIsMissing) {
  Open(MakeSpec(2, false, 0));
  const auto other = JobTables::Open(spec_, kSelf, TestResources(&clock_)).value();
  TestWorker other_0(spec_, other, 0), other_1(spec_, other, 1);
  for (TestWorker* w : {&worker(0), &other_0}) w->Push({.sequence = 1, .dense = {2, 2, 2, 2}});
  const uint64_t parked = worker(0).Commit(1, true, 0, /*examples=*/32);
  ASSERT_TRUE(job_->UpdateRoute(Later(spec_, {7, 1})).ok());
  ASSERT_TRUE(other->UpdateRoute(Later(spec_, {7, 1})).ok());
  EXPECT_EQ(worker(0).Get(parked).code, 10) << "the pull of the fenced life is dropped";
  EXPECT_EQ(job_->Report().ranks(0).committed(), 1u);
  EXPECT_EQ(job_->Report().ranks(0).totals().examples(), 32u);
  EXPECT_EQ(other->Report().ranks(0).committed(), 0u);
  EXPECT_EQ(other->Report().ranks(0).sequence(), 1u) << "it holds the push that was committed";

  TestWorker again(spec_, job_, 0, 7), other_again(spec_, other, 0, 7);
  for (TestWorker* w : {&again, &other_again, &worker(1), &other_1}) w->set_generation(2);
  const uint64_t here = again.Commit(1, true, 0, 32), there = other_again.Commit(1, true, 0, 32);
  for (TestWorker* w : {&worker(1), &other_1}) {
    w->Push({.sequence = 1, .dense = {4, 4, 4, 4}, .generation = 2});
    EXPECT_FALSE(again.Get(here).done && other_again.Get(there).done);
    EXPECT_TRUE(w->Get(w->Commit(1)).done);
  }
  EXPECT_THAT(again.Get(here).dense, ElementsAre(-0.5f, -0.5f, -0.5f, -0.5f));
  EXPECT_EQ(other_again.Get(there).dense, again.Get(here).dense);
}

// Rank 1 has committed the first step at one of two pservers and dies. The job continues without
// it.
TEST_F(JobTablesTest, CommitOfALostRankIsCompletedWhereItIsMissing) {
  Open(MakeSpec(2, false, 0));
  const auto other = JobTables::Open(spec_, kSelf, TestResources(&clock_)).value();
  TestWorker other_0(spec_, other, 0), other_1(spec_, other, 1);
  for (TestWorker* w : {&worker(1), &other_1}) w->Push({.sequence = 1, .dense = {2, 2, 2, 2}});
  worker(1).Commit(1, true, 0, /*examples=*/32);
  const uint64_t fenced_step = 2;
  for (TestWorker* w : {&worker(1), &other_1}) {
    const Answer& early = w->Get(w->Push({.sequence = fenced_step, .dense = {8, 8, 8, 8}}));
    EXPECT_EQ(early.code, 0) << "it is only buffered";
  }
  for (const auto& job : {job_, other}) ASSERT_TRUE(job->UpdateRoute(Later(spec_, {1, 7})).ok());
  for (TestWorker* w : {&worker(0), &other_0}) w->set_generation(2);
  CutOrder order;
  LostCommit* const lost = order.add_commits();
  lost->set_rank(1);
  lost->mutable_commit()->set_sequence(1);
  lost->mutable_commit()->mutable_totals()->set_examples(32);
  // At one pserver the other rank commits before the order comes, at the other one afterwards.
  job_->SetCutOrder(order);
  for (TestWorker* w : {&worker(0), &other_0})
    w->Push({.sequence = 1, .dense = {4, 4, 4, 4}, .generation = 2});
  const uint64_t here = worker(0).Commit(1), there = other_0.Commit(1);
  EXPECT_TRUE(worker(0).Get(here).done);
  EXPECT_FALSE(other_0.Get(there).done);
  for (int i = 0; i < 2; ++i) {
    for (const auto& job : {job_, other}) job->SetCutOrder(order);
  }
  EXPECT_TRUE(other_0.Get(there).done);
  EXPECT_THAT(worker(0).Get(here).dense, ElementsAre(-0.5f, -0.5f, -0.5f, -0.5f));
  EXPECT_EQ(other_0.Get(there).dense, worker(0).Get(here).dense);
  // Nothing of the next step is applied.
  worker(0).Push({.sequence = 2, .dense = {4, 4, 4, 4}, .generation = 2});
  EXPECT_FALSE(worker(0).Get(worker(0).Commit(2)).done);
  EXPECT_THAT(worker(0).Dense(), ElementsAre(-0.5f, -0.5f, -0.5f, -0.5f));
}

TEST_F(JobTablesTest, ALostCommitWithoutItsPushOrOfAnUnknownRankIsLeftOut) {
  Open(MakeSpec(2, false, 0));
  CutOrder order;
  for (const uint32_t rank : {1, 9}) {
    order.add_commits()->set_rank(rank);
    order.mutable_commits()->rbegin()->mutable_commit()->set_sequence(1);
  }
  job_->SetCutOrder(order);
  Push(0, {.sequence = 1, .dense = {4, 4, 4, 4}});
  EXPECT_FALSE(worker(0).Get(worker(0).Commit(1)).done);
}

TEST_F(JobTablesTest, ACutAfterAStepThatIsNotTheLastClosedOneIsRefused) {
  Open(MakeSpec(1, false, 0));
  Push(0, {.sequence = 1, .dense = {4, 4, 4, 4}});
  worker(0).Commit(1);
  CutOrder order;
  order.set_now(1);
  order.set_step(2);
  job_->SetCutOrder(order);
  EXPECT_EQ(job_->Report().cut().state(), HostedCut::FAILED);
  EXPECT_THAT(job_->Report().cut().error(), HasSubstr("step 1"));
}

TEST_F(JobTablesTest, ReplayedPushesOfASyncStepAreDuplicates) {
  Open(MakeSpec(1, false, 0));
  Push(0, {.sequence = 1, .dense = {2, 2, 2, 2}});
  ASSERT_TRUE(job_->UpdateRoute(Later(spec_, {2})).ok());
  EXPECT_EQ(job_->Report().ranks(0).committed(), 0u);
  TestWorker again(spec_, job_, 0, 2);
  again.set_generation(2);
  const Answer& pushed =
      again.Get(again.Push({.sequence = 1, .dense = {2, 2, 2, 2}, .generation = 2}));
  EXPECT_EQ(pushed.code, 0);
  EXPECT_THAT(pushed.errors, IsEmpty());
  EXPECT_THAT(again.Get(again.Commit(1)).dense, ElementsAre(0, 0, 0, 0));
}

TEST_F(JobTablesTest, ClosingRefusesWaitingPulls) {
  Open(MakeSpec(2, false, 0));
  Push(0, {.sequence = 1, .dense = {2, 2, 2, 2}});
  const uint64_t pull = worker(0).Commit(1);
  EXPECT_FALSE(worker(0).Get(pull).done);
  job_->Close();
  EXPECT_EQ(worker(0).Get(pull).code, 5);
  EXPECT_EQ(Push(1, {.sequence = 1, .dense = {2, 2, 2, 2}}).code, 5);
}

}  // namespace
}  // namespace sluice
