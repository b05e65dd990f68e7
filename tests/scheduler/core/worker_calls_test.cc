#include "scheduler/core/worker_calls.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "common/security/refusal_reason.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::HasSubstr;

GetRouteRequest RouteRequest(const WorkerAssignment& assigned) {
  GetRouteRequest request;
  request.set_job_id(assigned.job().job_id());
  request.set_rank(assigned.rank());
  request.set_incarnation(assigned.incarnation());
  request.set_pass(assigned.pass());
  return request;
}

// Trains a whole async or Geo epoch in which rank 0 takes all tasks and rank 1 none.
void TrainAlone(FakeCluster* c, const std::string& job) {
  PhaseReport index = Ended(1);
  DataFile* file = index.mutable_index()->add_files();
  file->set_path("a");
  file->set_bytes(250);
  c->Phase(job, 0, index).status().IgnoreError();
  EXPECT_EQ(c->Phase(job, 1, Ended(1))->phase().kind(), Phase::TRAIN);
  uint64_t finished = 0;
  for (int i = 0; i < 3; ++i) {
    const auto task = c->Task(job, 0, 0, finished);
    ASSERT_EQ(task->kind(), NextTaskReply::TASK);
    finished = task->task().id();
  }
  // Rank 1 may end its epoch while rank 0 holds the last task.
  EXPECT_EQ(c->Task(job, 1, 0, 0)->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_FALSE(c->Phase(job, 1, Trained(2, 0))->ready());
  EXPECT_TRUE(absl::IsFailedPrecondition(c->Phase(job, 0, Trained(2, 9)).status()));
  EXPECT_EQ(c->Task(job, 0, 0, finished)->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_EQ(c->Phase(job, 0, Trained(2, 9))->phase().kind(), Phase::EVAL);
  EXPECT_EQ(c->Status(job).examples(), 9u);
}

TEST(WorkerCallsTest, AWorkerCallsOnlyForTheRankOfItsPass) {
  SchedulerCore::Options options = FakeCluster::Options(1, 2);
  options.pass_key = std::string(32, 'k');
  FakeCluster c(options);
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  EXPECT_EQ(c.Phase(job, 0)->phase().kind(), Phase::INDEX);
  std::string& shown = c.core_.passes().at({job, 0, c.Incarnation(job, 0)});
  const std::string own = shown;
  shown = c.desired_[c.workers_[1]].assignment().pass();
  EXPECT_EQ(c.Phase(job, 0, Indexed(50, 0)).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(c.Task(job, 0, 0, 0).status().code(), absl::StatusCode::kPermissionDenied);
  shown = own;
  EXPECT_EQ(c.Phase(job, 0)->phase().kind(), Phase::INDEX) << "the report did not count";
}

TEST(WorkerCallsTest, ACallOfAnEarlierLifeOfARankMayBeLateAndOneOfALaterLifeIsNot) {
  FakeCluster c(1, 2);
  c.JoinAll(1, 2);
  NextTaskRequest request;
  request.set_job_id(c.Run(FakeCluster::Config(0, 2)));
  const uint64_t now = c.Incarnation(request.job_id(), 0);
  request.set_incarnation(now - 1);
  const absl::Status earlier = c.core_.NextTask(request, c.now_).status();
  EXPECT_TRUE(absl::IsAborted(earlier)) << earlier;
  EXPECT_EQ(CauseOf(earlier), std::nullopt);
  request.set_incarnation(now + 1);
  const absl::Status later = c.core_.NextTask(request, c.now_).status();
  EXPECT_TRUE(absl::IsAborted(later)) << later;
  EXPECT_EQ(CauseOf(later), RefusalReason::kPass);
}

TEST(WorkerCallsTest, OnlyWorkersOfAJobLearnItsRoute) {
  FakeCluster c(2, 4);
  c.JoinAll(2, 4);
  JobConfig config = FakeCluster::Config(-1, 2);
  config.mutable_recovery()->set_max_losses(3);
  const std::string job = c.Run(config);
  const WorkerAssignment assigned = c.desired_[c.workers_[0]].assignment();
  GetRouteRequest request;
  request.set_job_id(job);
  request.set_incarnation(assigned.incarnation());
  EXPECT_TRUE(absl::IsPermissionDenied(c.core_.workers().GetRoute(request).status()));
  request.set_incarnation(assigned.incarnation() + 1);
  EXPECT_TRUE(absl::IsAborted(c.core_.workers().GetRoute(request).status()))
      << "as for a fenced rank";
  request = RouteRequest(assigned);
  request.set_rank(1);  // of another worker, with this one's pass
  EXPECT_FALSE(c.core_.workers().GetRoute(request).ok());

  const GetRouteRequest own = RouteRequest(assigned);
  const auto reply = c.core_.workers().GetRoute(own);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->route().pservers_size(), 2);
  // A rank that a loss has withdrawn may still look for its pservers.
  MemberEndedRequest ended;
  ended.set_role(ROLE_PSERVER);
  ended.set_rank(0);
  ended.set_pid(1);
  ended.set_process_space("space");
  ended.set_reason("its process was killed by signal 9");
  c.core_.members().MemberEnded(ended, c.now_);
  ASSERT_EQ(c.Status(job).state(), JOB_RECOVERING);
  EXPECT_TRUE(c.core_.workers().GetRoute(own).ok());
}

TEST(WorkerCallsTest, AsyncWorkerWithoutTasksEndsItsEpoch) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  TrainAlone(&c, job);
  EXPECT_EQ(c.Status(job).mode(), "async");
}

TEST(WorkerCallsTest, GeoLeasesTasksLikeAsync) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(20, 2));
  TrainAlone(&c, job);
  EXPECT_EQ(c.Status(job).mode(), "geo");
}

TEST(WorkerCallsTest, RepeatedReportsChangeNothing) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2));
  StartTraining(&c, job);
  EXPECT_EQ(c.Phase(job, 0, Indexed(50, 0))->phase().kind(), Phase::TRAIN);
  c.Phase(job, 0, Trained(2, 50)).status().IgnoreError();
  c.Phase(job, 0, Trained(2, 50)).status().IgnoreError();
  c.Phase(job, 1, Trained(2, 50)).status().IgnoreError();
  EXPECT_EQ(c.Phase(job, 0, Trained(2, 50))->phase().kind(), Phase::EVAL);
  EXPECT_EQ(c.Status(job).examples(), 100u);
}

TEST(WorkerCallsTest, StaleIncarnationIsRefused) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  NextPhaseRequest request;
  request.set_job_id(job);
  request.set_incarnation(c.Incarnation(job, 0) + 77);
  EXPECT_TRUE(absl::IsAborted(c.core_.NextPhase(request, c.now_).status()));
  request.set_rank(2);
  EXPECT_TRUE(absl::IsInvalidArgument(c.core_.NextPhase(request, c.now_).status()));
  request.set_job_id("none-1");
  EXPECT_TRUE(absl::IsNotFound(c.core_.NextPhase(request, c.now_).status()));
}

TEST(WorkerCallsTest, ReportedFailureEndsTheJobForAll) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(0, 2));
  FailJobRequest request;
  request.set_job_id(job);
  request.set_member_id(c.workers_[1]);
  request.set_message("file x is missing");
  request.set_incarnation(c.Incarnation(job, 1) + 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(c.core_.FailJob(request, c.now_))) << "of another life";
  request.set_incarnation(c.Incarnation(job, 1));
  ASSERT_TRUE(c.core_.FailJob(request, c.now_).ok());
  c.WriteOutputs();
  EXPECT_THAT(c.Status(job).message(), AllOf(HasSubstr("worker 1 (pid 1 on host h) of job job-1"),
                                             HasSubstr("file x is missing")));
  EXPECT_EQ(c.Phase(job, 0)->phase().kind(), Phase::FINISH);
  EXPECT_TRUE(absl::IsCancelled(c.Task(job, 0, 0, 0).status()));
}

TEST(WorkerCallsTest, TheResultOfAFailedJobCountsTheEpochInWhichItFailed) {
  FakeCluster c;
  c.JoinAll(1, 2);
  const std::string job = c.Run(FakeCluster::Config(-1, 2, 3));
  StartTraining(&c, job);
  c.Advance(absl::Seconds(2));
  FailJobRequest request;
  request.set_job_id(job);
  request.set_member_id(c.workers_[1]);
  request.set_incarnation(c.Incarnation(job, 1));
  request.set_message("a bad line");
  WorkerProgress* const progress = request.mutable_progress();
  progress->set_job_id(job);
  progress->set_rank(1);
  progress->set_incarnation(c.Incarnation(job, 1));
  progress->set_epoch(1);
  progress->set_step(4);
  progress->set_examples(37);
  progress->set_bad_lines(2);
  ASSERT_TRUE(c.core_.FailJob(request, c.now_).ok());
  c.WriteOutputs();
  const JobResult result = c.Status(job).result();
  EXPECT_EQ(result.status(), "failed");
  // The other rank has reported nothing, but has trained these steps as well: 4 batches of 10.
  EXPECT_EQ(result.examples(), 77u);
  EXPECT_EQ(result.bad_lines(), 2u);
  EXPECT_EQ(result.global_step(), 4u);
  EXPECT_EQ(result.epochs(), 0u);
  EXPECT_EQ(result.seconds(), 2);
  EXPECT_EQ(result.examples_per_second(), 38.5);
}

TEST(WorkerCallsTest, ABatchOfAProgramsOwnDataIsCountedAsTheOtherRanksReport) {
  FakeCluster c;
  c.JoinAll(1, 2);
  JobConfig config = FakeCluster::Config(-1, 2, 3);
  config.mutable_model()->mutable_program();
  config.mutable_data()->clear_train_files();
  config.mutable_data()->clear_eval_files();
  const std::string job = c.Run(config);
  StartTraining(&c, job);
  FailJobRequest request;
  request.set_job_id(job);
  request.set_member_id(c.workers_[1]);
  request.set_incarnation(c.Incarnation(job, 1));
  request.set_message("an exception");
  WorkerProgress* const progress = request.mutable_progress();
  progress->set_job_id(job);
  progress->set_rank(1);
  progress->set_incarnation(c.Incarnation(job, 1));
  progress->set_epoch(1);
  progress->set_step(4);
  progress->set_examples(12);
  ASSERT_TRUE(c.core_.FailJob(request, c.now_).ok());
  c.WriteOutputs();
  EXPECT_EQ(c.Status(job).result().examples(), 24u) << "not batches of the size in the job";
}

// What ranks of a failed sync job have reported last is of different steps; all have trained them.
TEST(WorkerCallsTest, TheResultOfAFailedSyncJobCountsTheStepsOfLateReports) {
  FakeCluster c(1, 3);
  c.JoinAll(1, 3);
  JobConfig config = FakeCluster::Config(-1, 3, 3);
  const std::string job = c.Run(config);
  for (const uint32_t rank : {0, 1, 2}) c.Phase(job, rank, Indexed(50, rank, 3)).status().IgnoreError();
  WorkerProgress progress[3];
  for (const uint32_t rank : {0, 1, 2}) {
    progress[rank].set_job_id(job);
    progress[rank].set_rank(rank);
    progress[rank].set_incarnation(c.Incarnation(job, rank));
    progress[rank].set_epoch(1);
    progress[rank].set_step(2 + rank);
    progress[rank].set_examples((2 + rank) * (rank == 1 ? 8 : 10));  // rank 1 has smaller batches
    PollRequest poll;
    poll.set_member_id(c.workers_[rank]);
    *poll.mutable_progress() = progress[rank];
    ASSERT_TRUE(c.core_.Poll(poll, c.now_).ok());
  }
  // Rank 0 is lost: no worker reports for it any more.
  MemberEndedRequest ended;
  ended.set_role(ROLE_WORKER);
  ended.set_pid(1);
  ended.set_process_space("space");
  ended.set_reason("its process was killed by signal 9");
  ASSERT_TRUE(c.core_.members().MemberEnded(ended, c.now_));
  c.WriteOutputs();
  const JobResult result = c.Status(job).result();
  EXPECT_EQ(result.status(), "failed");
  EXPECT_EQ(result.global_step(), 4u);
  EXPECT_EQ(result.examples(), 40u + 32u + 40u);
}

// The epoch at whose end the job fails is in the result already.
TEST(WorkerCallsTest, TheResultCountsAnEpochOnce) {
  FakeCluster c;
  c.JoinAll(1, 2);
  JobConfig config = FakeCluster::Config(-1, 2, 3);
  config.mutable_data()->set_max_bad_lines(1);
  const std::string job = c.Run(config);
  const Phase train = StartTraining(&c, job);
  for (const uint32_t rank : {0, 1}) {
    PhaseReport report = Trained(train.number(), 50);
    report.mutable_train()->set_bad_lines(3);
    ASSERT_TRUE(c.Phase(job, rank, report).ok());
  }
  c.WriteOutputs();
  const JobResult result = c.Status(job).result();
  EXPECT_EQ(result.status(), "failed");
  EXPECT_EQ(result.examples(), 100u);
  EXPECT_EQ(result.bad_lines(), 6u);
}

// Two ranks of a sync job are in its first epoch.
std::string InFirstEpoch(FakeCluster* c) {
  c->JoinAll(1, 2);
  const std::string job = c->Run(FakeCluster::Config(-1, 2, /*epochs=*/2));
  for (const uint32_t rank : {0, 1}) c->Phase(job, rank, Indexed(50, rank)).status().IgnoreError();
  EXPECT_EQ(c->Phase(job, 0)->phase().kind(), Phase::TRAIN);
  return job;
}

TEST(WorkerCallsTest, RanksGetWhatAllHaveGiven) {
  FakeCluster c(1, 2);
  const std::string job = InFirstEpoch(&c);
  for (const uint32_t border : {0, 1}) {
    const auto waits = c.Gather(job, 1, border, 0, "b");
    ASSERT_TRUE(waits.ok()) << waits.status();
    EXPECT_FALSE(waits->ready());
    EXPECT_THAT(waits->waiting_for(), HasSubstr("rank 0"));
    GatherRequest waiting;
    waiting.set_job_id(job);
    waiting.set_rank(1);
    waiting.set_incarnation(c.Incarnation(job, 1));
    waiting.set_pass(c.core_.passes().at({job, 1, waiting.incarnation()}));
    waiting.set_epochs_done(border);
    EXPECT_FALSE(c.core_.workers().GatherReady(waiting));
    c.core_.TakeChanged();
    const auto reply = c.Gather(job, 0, border, 0, "a");
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(reply->ready());
    EXPECT_THAT(reply->data(), testing::ElementsAre("a", "b"));
    EXPECT_TRUE(c.core_.workers().GatherReady(waiting));
    EXPECT_THAT(c.core_.TakeChanged(), testing::Contains(WaitKey::Phase(job)));
  }
  GatherRequest stranger;
  stranger.set_job_id(job);
  stranger.set_incarnation(c.Incarnation(job, 0));
  EXPECT_TRUE(absl::IsPermissionDenied(c.core_.workers().Gather(stranger).status()));
}

TEST(WorkerCallsTest, RanksGiveEachOtherNothingAtAnEndThatIsNotTheirs) {
  FakeCluster c(1, 2);
  const std::string job = InFirstEpoch(&c);
  const absl::Status elsewhere = c.Gather(job, 0, 2, 0, "").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(elsewhere)) << elsewhere;
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("rank 0 is at the end of epoch 2"));
}

TEST(WorkerCallsTest, ARankThatEndsTheEpochWithoutTheCallOfAnotherEndsItsWait) {
  FakeCluster c(1, 2);
  const std::string job = InFirstEpoch(&c);
  EXPECT_FALSE(c.Gather(job, 0, 1, 0, "a")->ready());
  c.Phase(job, 1, Trained(2, 25)).status().IgnoreError();
  const absl::Status left = c.Gather(job, 0, 1, 0, "a").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(left)) << left;
  EXPECT_THAT(std::string(left.message()), HasSubstr("rank 1 has gone on without it"));
}

TEST(WorkerCallsTest, TheEndOfAJobEndsTheCallsOfItsRanks) {
  FakeCluster c(1, 2);
  const std::string job = InFirstEpoch(&c);
  EXPECT_FALSE(c.Gather(job, 0, 1, 0, "a")->ready());
  ASSERT_TRUE(c.core_.operators().CancelJob(job, c.now_, "").ok());
  EXPECT_TRUE(absl::IsCancelled(c.Gather(job, 0, 1, 0, "a").status()));
}

}  // namespace
}  // namespace sluice
