// Jobs that outlive their scheduler: a second core continues from the records of the first.
#include <gmock/gmock.h>

#include <memory>

#include "tests/scheduler/restart_fixture.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(RestartTest, QueuedJobsAreQueuedAgainInTheirOrder) {
  const std::string first = Submit(Config()), second = Submit(Config(1));
  Restart();
  EXPECT_EQ(c_->State(first), JOB_QUEUED);
  EXPECT_EQ(c_->Status(first).queue_position(), 0);
  const ClusterStatus status = c_->core_.operators().GetStatus(c_->now_);
  ASSERT_EQ(status.jobs_size(), 2);
  EXPECT_EQ(status.jobs(0).job_id(), first);
  EXPECT_EQ(status.jobs(1).job_id(), second);
  EXPECT_EQ(status.jobs(0).recovery().scheduler_restarts(), 0);
  c_->JoinAll(2, 2);
  EXPECT_EQ(c_->State(first), JOB_RUNNING);
  EXPECT_EQ(c_->State(second), JOB_QUEUED);
  EXPECT_EQ(Submit(Config(1)), "job-3");
}

TEST_F(RestartTest, ABegunJobRunsAgainFromTheBeginningWhenItHasNoCheckpoint) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  const uint64_t instance = c_->desired_[c_->pservers_[0]].host(0).instance();
  const uint64_t version = c_->Status(job).version();
  Keep();
  EXPECT_TRUE(Record(job).begun());
  EXPECT_THAT(Record(job).pservers(), ElementsAre(0, 1));
  EXPECT_THAT(Record(job).instances(), ElementsAre(instance));

  Restart();
  EXPECT_EQ(c_->State(job), JOB_RECOVERING);
  EXPECT_GT(c_->Status(job).version(), version);
  const std::vector<OutputAction> actions = c_->WriteOutputs();
  ASSERT_EQ(actions.size(), 1);
  EXPECT_EQ(actions[0].kind, OutputAction::kStarted);
  EXPECT_TRUE(actions[0].again);
  c_->JoinAll(2, 2);
  ASSERT_EQ(c_->State(job), JOB_RUNNING) << c_->Status(job).message();
  const JobSpec& spec = c_->desired_[c_->pservers_[0]].host(0);
  EXPECT_NE(spec.instance(), instance);
  EXPECT_FALSE(spec.has_restore());
  EXPECT_EQ(c_->Status(job).recovery().scheduler_restarts(), 1);
  Keep();
  EXPECT_THAT(Record(job).instances(), ElementsAre(instance, spec.instance()));

  EndPhases(job);
  EXPECT_EQ(c_->WriteOutputs().back().result.recovery().scheduler_restarts(), 1);
  EXPECT_EQ(c_->State(job), JOB_DONE);
  Keep();
  EXPECT_EQ(records_.count("job/" + job), 0);
}

TEST_F(RestartTest, ABegunJobContinuesFromItsCheckpoint) {
  c_->JoinAll(2, 2);
  JobConfig config = Config();
  config.set_initial_checkpoint("/earlier/step-3");
  const std::string job = Run(config);
  auto point = std::make_unique<ResumePoint>();
  point->dir = "/output/job-1/checkpoints/step-4";
  CheckpointState* const state = point->manifest.mutable_checkpoint();
  state->set_mode("sync");
  state->set_worker_num(2);
  state->set_global_step(4);
  state->set_steps_done(4);
  state->set_global_batch(20);
  state->add_workers();
  state->add_workers();
  point->damaged = {"of-step-8"};
  points_[job] = std::unique_ptr<const ResumePoint>(std::move(point));
  Restart();
  EXPECT_THAT(Record(job).damaged(), testing::ElementsAre("of-step-8"));
  c_->JoinAll(2, 2);
  ASSERT_EQ(c_->State(job), JOB_RUNNING) << c_->Status(job).message();
  const Restore& restore = c_->desired_[c_->pservers_[0]].host(0).restore();
  EXPECT_EQ(restore.directory(), "/output/job-1/checkpoints/step-4");
  EXPECT_EQ(restore.step(), 4);
  EXPECT_EQ(restore.kind(), Restore::RESUME);
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 1);
  points_.clear();
  Restart();
  EXPECT_THAT(Record(job).damaged(), testing::ElementsAre("of-step-8"));
}

TEST_F(RestartTest, AJobThatCannotContinueFailsAndSaysWhy) {
  c_->JoinAll(2, 2);
  const std::string begun = Run(Config()), queued = Submit(Config());
  for (const std::string& job : {begun, queued})
    points_[job] = absl::DataLossError("step-4/wide.0.shard is damaged");
  Restart();
  EXPECT_EQ(c_->WriteOutputs().size(), 3);  // one start, two ends
  for (const std::string& job : {begun, queued}) {
    EXPECT_EQ(c_->State(job), JOB_FAILED);
    EXPECT_THAT(c_->Status(job).message(), HasSubstr("wide.0.shard"));
  }
}

TEST_F(RestartTest, AJobThatIsOverGetsItsResultAndDoesNotRunAgain) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  EndPhases(job);
  Keep();  // the result is not written yet
  const JobRecord over = Record(job);
  EXPECT_EQ(over.outcome(), JOB_DONE);
  EXPECT_FALSE(over.save_id().empty());
  Restart();
  const std::vector<OutputAction> actions = c_->WriteOutputs();
  ASSERT_EQ(actions.size(), 1);
  EXPECT_EQ(actions[0].kind, OutputAction::kEnded);
  EXPECT_TRUE(actions[0].again);
  EXPECT_EQ(actions[0].save_id, over.save_id());
  EXPECT_EQ(actions[0].result.SerializeAsString(), over.result().SerializeAsString());
  EXPECT_EQ(c_->State(job), JOB_DONE);
  c_->JoinAll(2, 2);
  EXPECT_EQ(c_->desired_[c_->pservers_[0]].host_size(), 0);
  Keep();
  EXPECT_EQ(records_.count("job/" + job), 0);
}

TEST_F(RestartTest, CancelledAndRefusedJobsLeaveNoRecord) {
  const std::string job = Submit(Config());
  ASSERT_TRUE(c_->core_.operators().CancelJob(job, c_->now_).ok());
  Keep();
  EXPECT_EQ(Record(job).outcome(), JOB_CANCELLED);
  c_->WriteOutputs();
  Keep();
  EXPECT_EQ(records_.count("job/" + job), 0);
}

TEST_F(RestartTest, AResultThatAnEarlierSchedulerKeepsFromBeingWrittenIsNotLost) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  EndPhases(job);
  Restart();
  c_->core_.TakeActions();
  c_->core_.OutputEnded(job, absl::AbortedError("an earlier scheduler has the folder"));
  EXPECT_EQ(c_->State(job), JOB_FAILED);
  Keep();
  EXPECT_EQ(Record(job).outcome(), JOB_DONE);
  Restart();
  EXPECT_EQ(c_->WriteOutputs().back().result.status(), "done");
  EXPECT_EQ(c_->State(job), JOB_DONE);
}

TEST_F(RestartTest, AWarningIsGivenOnce) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  c_->core_.Warn(job, "w");
  for (int i = 0; i < 2; ++i) {
    Keep();
    JobRecord record = Record(job);
    record.add_warnings("w");  // as a scheduler finds it again at its start
    records_["job/" + job] = record.SerializeAsString();
    Restart();
    c_->core_.Warn(job, "w");
  }
  EXPECT_EQ(c_->Status(job).warnings_size(), 1);
}

TEST_F(RestartTest, LossesAreRemembered) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  MemberEndedRequest ended;
  ended.set_role(ROLE_WORKER);
  ended.set_rank(1);
  ended.set_pid(1);
  ended.set_process_space("space");
  c_->core_.members().MemberEnded(ended, c_->now_);
  Restart();
  Restart();
  EXPECT_EQ(c_->Status(job).recovery().worker_losses(), 1);
  EXPECT_EQ(c_->Status(job).recovery().scheduler_restarts(), 2);
}

TEST_F(RestartTest, CallsOfTheEarlierAttemptAreFencedOff) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  const std::vector<uint64_t> workers = c_->workers_;
  const uint64_t incarnation = c_->Incarnation(job, 0);
  Restart();
  NextPhaseRequest next;
  next.set_job_id(job);
  next.set_incarnation(incarnation);
  *next.mutable_report() = Indexed(50);
  FailJobRequest fail;
  fail.set_job_id(job);
  fail.set_member_id(workers[0]);
  EXPECT_TRUE(absl::IsAborted(c_->core_.NextPhase(next, c_->now_).status()));
  EXPECT_TRUE(absl::IsNotFound(c_->core_.FailJob(fail, c_->now_)));
  c_->JoinAll(2, 2);
  EXPECT_TRUE(absl::IsAborted(c_->core_.NextPhase(next, c_->now_).status()));
  EXPECT_TRUE(absl::IsNotFound(c_->core_.FailJob(fail, c_->now_)));
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
}

TEST_F(RestartTest, AWorkerIsTakenOnlyWhenItHasDroppedTheEarlierAttempt) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  Restart();
  PollRequest busy;
  busy.mutable_progress()->set_job_id(job);
  for (const uint32_t rank : {0, 1}) {
    c_->pservers_.push_back(c_->Join(ROLE_PSERVER, rank));
    c_->workers_.push_back(c_->Join(ROLE_WORKER, rank));
    busy.set_member_id(c_->workers_.back());
    ASSERT_TRUE(c_->core_.Poll(busy, c_->now_).ok());
  }
  EXPECT_EQ(c_->State(job), JOB_RECOVERING);
  c_->PollAll();
  EXPECT_EQ(c_->State(job), JOB_RUNNING);
}

TEST_F(RestartTest, MembersThatDoNotComeBackEndTheJob) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  Restart();
  c_->Advance(absl::Seconds(121));
  c_->WriteOutputs();
  EXPECT_EQ(c_->State(job), JOB_FAILED);
  EXPECT_THAT(c_->Status(job).message(), HasSubstr("pserver 0 to register"));
}

TEST_F(RestartTest, ADrainedPserverStaysSo) {
  c_->JoinAll(2, 2);
  ASSERT_TRUE(c_->Drain(1).ok());
  Restart();
  c_->JoinAll(2, 2);
  EXPECT_TRUE(c_->core_.operators().GetStatus(c_->now_).members(1).draining());
  const std::string job = Run(Config());
  EXPECT_THAT(c_->Status(job).route().pservers(), ElementsAre("ps0"));
  ASSERT_TRUE(c_->Drain(1, /*cancel=*/true).ok());
  Restart();
  c_->JoinAll(2, 2);
  EXPECT_FALSE(c_->core_.operators().GetStatus(c_->now_).members(1).draining());
}

TEST_F(RestartTest, ADrainThatAPserverAsksForEndsWithItsProcess) {
  c_->JoinAll(2, 2);
  ASSERT_TRUE(c_->Drain(1, /*cancel=*/false, c_->pservers_[1]).ok());
  EXPECT_TRUE(Draining(1));
  // It ends without a farewell.
  c_->pservers_[1] = c_->Join(ROLE_PSERVER, 1, /*pid=*/1);
  EXPECT_TRUE(Draining(1)) << "it only repeated its call";
  MemberEndedRequest ended;
  ended.set_role(ROLE_PSERVER);
  ended.set_rank(1);
  ended.set_pid(1);
  ended.set_process_space("space");
  c_->core_.members().MemberEnded(ended, c_->now_);
  c_->pservers_[1] = c_->Join(ROLE_PSERVER, 1, /*pid=*/2);
  EXPECT_FALSE(Draining(1));
  // The whole cluster is stopped and started.
  ASSERT_TRUE(c_->Drain(1, /*cancel=*/false, c_->pservers_[1]).ok());
  Restart();
  c_->JoinAll(2, 2);
  EXPECT_FALSE(Draining(1));
}

TEST_F(RestartTest, ANewProcessMayReplaceADrainedPserverThatHasLeft) {
  c_->JoinAll(2, 2);
  ASSERT_TRUE(c_->Drain(1).ok());
  // That the pserver asks as well, because it is to end, does not take the operator's mark away.
  ASSERT_TRUE(c_->Drain(1, /*cancel=*/false, c_->pservers_[1]).ok());
  Restart();
  c_->JoinAll(2, 2);
  EXPECT_TRUE(Draining(1));
  LeaveRequest leave;
  leave.set_member_id(c_->pservers_[1]);
  c_->core_.Leave(leave, c_->now_);
  Restart();
  Restart();
  c_->JoinAll(2, 2);
  EXPECT_FALSE(Draining(1));
  Restart();
  c_->JoinAll(2, 2);
  EXPECT_FALSE(Draining(1));
}

TEST_F(RestartTest, AJobThatBeginsAgainAvoidsADrainedPserver) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  EXPECT_THAT(c_->Drain(1)->jobs(), ElementsAre(job));
  Restart();
  c_->JoinAll(2, 2);
  ASSERT_EQ(c_->State(job), JOB_RUNNING) << c_->Status(job).message();
  EXPECT_THAT(c_->Status(job).route().pservers(), ElementsAre("ps0"));
  EXPECT_TRUE(c_->Drain(1)->jobs().empty());
}

TEST_F(RestartTest, AJobKeepsItsPresentNumberOfWorkers) {
  c_->JoinAll(2, 2);
  JobConfig config = Config();
  config.mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(SyncConfigs::SHRINK);
  const std::string job = Run(config);
  MemberEndedRequest ended;
  ended.set_role(ROLE_WORKER);
  ended.set_rank(1);
  ended.set_pid(1);
  ended.set_process_space("space");
  c_->core_.members().MemberEnded(ended, c_->now_);
  c_->PollAll();
  ASSERT_EQ(c_->State(job), JOB_RUNNING) << c_->Status(job).message();
  Keep();
  EXPECT_EQ(Record(job).worker_num(), 1);
  Restart();
  EXPECT_EQ(c_->Status(job).config().worker_num(), 2);
  c_->JoinAll(2, 2);
  ASSERT_EQ(c_->State(job), JOB_RUNNING) << c_->Status(job).message();
  EXPECT_EQ(c_->Status(job).worker_num(), 1);
  EXPECT_EQ(c_->Status(job).recovery().shrinks(), 1);
  // The steps of the job are still those of two workers.
  EXPECT_EQ(c_->desired_[c_->pservers_[0]].host(0).global_batch(), 20);
}

// The scheduler dies while the job prepares to continue without a rank.
TEST_F(RestartTest, ARankThatIsBeingLeftOutIsNotWaitedFor) {
  adopts_ = true;
  c_->JoinAll(2, 2);
  JobConfig config = Config();
  config.mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(SyncConfigs::SHRINK);
  const std::string job = Run(config);
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_->Phase(job, rank, Indexed(50, rank)).ok());
  RankPosition held;
  held.set_committed(3);
  for (const uint64_t id : c_->pservers_) c_->held_[id] = {held, held};
  MemberEndedRequest ended;
  ended.set_role(ROLE_WORKER);
  ended.set_rank(1);
  ended.set_pid(1);
  ended.set_process_space("space");
  c_->core_.members().MemberEnded(ended, c_->now_);
  c_->PollAll();
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  EXPECT_EQ(c_->Status(job).recovery().shrinks(), 0) << "it has not continued yet";
  Restart();
  c_->JoinAll(2, 1);
  ASSERT_EQ(c_->State(job), JOB_RUNNING) << c_->Status(job).message();
  EXPECT_EQ(c_->Status(job).worker_num(), 1);
  EXPECT_EQ(c_->Status(job).recovery().shrinks(), 1);
  EXPECT_EQ(c_->Status(job).recovery().rollbacks(), 1) << "it went back";
}

TEST_F(RestartTest, CallsOfRanksAreAnsweredAgain) {
  c_->JoinAll(2, 2);
  const std::string job = Run(Config());
  for (const uint32_t rank : {0, 1}) c_->Phase(job, rank, Indexed(50, rank)).status().IgnoreError();
  for (const uint32_t border : {0, 1}) {
    for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_->Gather(job, rank, border, 0, "x").ok());
  }
  Keep();
  ASSERT_EQ(records_.count("gather/" + job + "/0/0"), 1);
  ASSERT_EQ(records_.count("gather/" + job + "/1/0"), 1);
  // The attempt does not continue: its epochs are trained again, and their calls are made again.
  Restart();
  EXPECT_EQ(records_.count("gather/" + job + "/0/0"), 1);
  EXPECT_EQ(records_.count("gather/" + job + "/1/0"), 0);
  c_->JoinAll(2, 2);
  ASSERT_EQ(c_->State(job), JOB_RUNNING);
  const auto again = c_->Gather(job, 1, 0, 0, "y");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->data(0), "x");
  ASSERT_TRUE(c_->core_.operators().CancelJob(job, c_->now_, "").ok());
  c_->PollAll();
  c_->WriteOutputs();
  Keep();
  EXPECT_EQ(records_.count("gather/" + job + "/0/0"), 0);
}

}  // namespace
}  // namespace sluice
