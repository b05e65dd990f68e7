#include "scheduler/core/operator_calls.h"

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <utility>

#include "model/eval/eval_accumulator.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(OperatorCallsTest, StatusSaysWhatAnyPserverWaitsFor) {
  FakeCluster c(2, 2);
  c.JoinAll(2, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2));
  StartTraining(&c, job);
  for (int i = 0; i < 2; ++i) {
    PollRequest request;
    request.set_member_id(c.pservers_[i]);
    HostedJob* hosted = request.add_hosted();
    hosted->set_job_id(job);
    hosted->set_generation(1);
    hosted->set_instance(c.desired_[c.pservers_[i]].host(0).instance());
    hosted->set_slowest_rank(i);
    hosted->set_slowest_wait_s(i == 0 ? 4 : 1);
    if (i == 1) hosted->set_waiting_for("commit 7 of rank 1 (0.5 s)");
    ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  }
  EXPECT_THAT(c.Status(job).waiting_for(), HasSubstr("slowest: rank 0 (worker 0"));
  EXPECT_THAT(c.Status(job).waiting_for(), HasSubstr("commit 7 of rank 1 (0.5 s)"));
}

// Each point of the speed sums what the ranks measured over the steps before it, whatever their
// latest report says when the point is made.
TEST(OperatorCallsTest, EpochsOfStatusAndResultCountFromOne) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2, 2));
  EXPECT_EQ(c.Status(job).epoch(), 1u);
  const Phase phase = StartTraining(&c, job);
  PollRequest request;
  request.set_member_id(c.workers_[0]);
  request.mutable_progress()->set_job_id(job);
  request.mutable_progress()->set_incarnation(c.Incarnation(job, 0));
  request.mutable_progress()->set_epoch(1);
  request.mutable_progress()->set_examples(7);
  ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  EXPECT_EQ(c.Status(job).epoch(), 1u);
  EXPECT_EQ(c.Status(job).examples_in_epoch(), 7u);
  for (const uint32_t rank : {0, 1})
    c.Phase(job, rank, Trained(phase.number(), 50)).status().IgnoreError();
  EvalAccumulator sums;
  sums.Add(1.0f, 1.0f, 1.0f);
  PhaseReport evaluated = Ended(phase.number() + 1);
  *evaluated.mutable_eval() = sums.ToProto();
  for (const uint32_t rank : {0, 1}) c.Phase(job, rank, evaluated).status().IgnoreError();
  EXPECT_EQ(c.Status(job).epoch(), 2u);
  EXPECT_EQ(c.Status(job).epochs_log(0).epoch(), 1u);
  std::map<std::string, uint64_t> steps;
  for (const OutputAction& action : c.core_.TakeActions()) {
    for (const Scalar& point : action.scalars) steps[point.tag] = point.step;
  }
  EXPECT_EQ(steps["train/epoch_loss"], 1u);
  EXPECT_EQ(steps["eval/log_loss"], 1u);
}

TEST(OperatorCallsTest, StepsThatAreReportedAgainCountOnce) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  PollRequest request;
  request.set_member_id(c.workers_[0]);
  request.mutable_progress()->set_job_id(job);
  request.mutable_progress()->set_incarnation(c.Incarnation(job, 0));
  for (const uint64_t step : {5, 10}) {
    request.mutable_progress()->add_losses()->set_step(step);
    ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  }
  WatchJobRequest watch;
  watch.set_job_id(job);
  const WatchJobReply steps = *c.core_.operators().WatchJob(watch);
  ASSERT_EQ(steps.steps_size(), 2);
  EXPECT_EQ(steps.steps(0).step(), 5u);
  EXPECT_EQ(steps.steps(1).step(), 10u);
}

TEST(OperatorCallsTest, WatchersGetEachReportedStepOnce) {
  FakeCluster c(1, 1);
  c.JoinAll(1, 1);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  const auto report = [&](uint64_t first, uint64_t last) {
    PollRequest request;
    request.set_member_id(c.workers_[0]);
    request.mutable_progress()->set_job_id(job);
    request.mutable_progress()->set_incarnation(c.Incarnation(job, 0));
    for (uint64_t step = first; step <= last; ++step) {
      request.mutable_progress()->add_losses()->set_step(step);
    }
    ASSERT_TRUE(c.core_.Poll(request, c.now_).ok());
  };
  WatchJobRequest watch;
  watch.set_job_id(job);
  EXPECT_EQ(c.core_.operators().WatchJob(watch)->steps_size(), 0);
  report(1, 3);
  const WatchJobReply first = *c.core_.operators().WatchJob(watch);
  ASSERT_EQ(first.steps_size(), 3);
  EXPECT_EQ(first.steps(0).step(), 1u);
  watch.set_seen_steps(first.steps_seen());
  EXPECT_EQ(c.core_.operators().WatchJob(watch)->steps_size(), 0);
  report(4, 3 + 2 * StepReports::kRecent);
  const WatchJobReply newest = *c.core_.operators().WatchJob(watch);
  ASSERT_EQ(newest.steps_size(), static_cast<int>(StepReports::kRecent));
  EXPECT_EQ(newest.steps(0).step(), 4 + StepReports::kRecent);
  EXPECT_EQ(newest.steps_seen(), 3 + 2 * StepReports::kRecent);
}

TEST(OperatorCallsTest, StatusShowsMembersAndAllocation) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 1));
  const ClusterStatus status = c.core_.operators().GetStatus(c.now_);
  ASSERT_EQ(status.members_size(), 3);
  EXPECT_EQ(status.members(1).job_id(), job);
  EXPECT_EQ(status.members(2).job_id(), "");
  EXPECT_THAT(status.jobs(0).allocated(), testing::ElementsAre(0));
  EXPECT_EQ(status.jobs(0).workers_alive(), 1u);
}

}  // namespace
}  // namespace sluice
