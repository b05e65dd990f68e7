// Checkpoints of jobs in a whole core with fake members.
#include "scheduler/recovery/checkpoint_lifecycle.h"

#include <gmock/gmock.h>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class CheckpointLifecycleTest : public testing::Test {
 protected:
  CheckpointLifecycleTest() : c_(2, 2) { c_.JoinAll(2, 2); }

  static JobConfig Config(uint32_t epochs = 2) {
    JobConfig config = FakeCluster::Config(-1, 2, epochs);
    config.mutable_checkpoint()->set_every_steps(3);
    config.mutable_checkpoint()->set_keep(2);
    config.set_output_dir("/out");
    return config;
  }
  // Runs the job up to its first TRAIN phase: 5 global steps an epoch.
  void StartTraining(const JobConfig& config) {
    job_ = c_.Run(config);
    c_.Phase(job_, 0, Indexed(50, 0)).status().IgnoreError();
    ASSERT_EQ(c_.Phase(job_, 1, Indexed(50, 1))->phase().kind(), Phase::TRAIN);
    c_.PollAll();
    c_.core_.TakeActions();
  }
  WorkerCheckpoint Asked(uint32_t rank) {
    return c_.desired_[c_.workers_[rank]].assignment().checkpoint();
  }
  void ReportHosted(size_t pserver, HostedCut::State state, uint64_t number, uint64_t step) {
    HostedCut cut;
    cut.set_checkpoint(number);
    cut.set_state(state);
    cut.set_step(step);
    if (state == HostedCut::FAILED) cut.set_error("disk full");
    if (state == HostedCut::WRITTEN)
      cut.add_files()->set_name(absl::StrCat("p-", pserver, ".shard"));
    c_.hosted_cuts_[c_.pservers_[pserver]] = cut;
  }
  void ReportWorker(uint32_t rank, uint64_t number, uint64_t step) {
    WorkerCut cut;
    cut.set_job_id(job_);
    cut.set_rank(rank);
    cut.set_incarnation(c_.Incarnation(job_, rank));
    cut.set_checkpoint(number);
    cut.set_step(step);
    cut.mutable_state()->mutable_train()->set_examples(7);
    cut.mutable_state()->mutable_train()->set_steps(c_.steps_done_);
    c_.worker_cuts_[c_.workers_[rank]] = cut;
  }
  // All parts of a checkpoint arrive. Returns the order to write it.
  std::vector<OutputAction> Complete(uint64_t number, uint64_t step) {
    for (const uint32_t i : {0, 1}) {
      ReportHosted(i, HostedCut::WRITTEN, number, step);
      ReportWorker(i, number, step);
    }
    c_.PollAll();
    return Checkpoints(OutputAction::kCheckpoint);
  }
  std::vector<OutputAction> Checkpoints(OutputAction::Kind kind) {
    std::vector<OutputAction> found;
    for (OutputAction& action : c_.core_.TakeActions()) {
      if (action.kind == kind) found.push_back(std::move(action));
    }
    return found;
  }
  void Wait(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      c_.PollAll();
      c_.Advance(absl::Seconds(1));
    }
  }
  // The cut that the pserver is told to begin, and its step.
  std::pair<uint64_t, uint64_t> Ordered(size_t pserver) {
    const PollReply& told = c_.desired_[c_.pservers_[pserver]];
    if (told.cuts_size() == 0) return {};
    return {told.cuts(0).now(), told.cuts(0).step()};
  }
  uint64_t Over(size_t pserver) {
    const PollReply& told = c_.desired_[c_.pservers_[pserver]];
    return told.cuts_size() == 0 ? 0 : told.cuts(0).over();
  }

  FakeCluster c_;
  std::string job_;
};

TEST_F(CheckpointLifecycleTest, AGlobalBatchHasTheMergedBatchesOfAllRanks) {
  JobConfig config = Config();
  config.mutable_strategy()->mutable_sync_configs()->set_gradient_merge_steps(2);
  StartTraining(config);
  EXPECT_EQ(c_.desired_[c_.workers_[0]].assignment().job().global_batch(), 40u);
  ReportHosted(0, HostedCut::WRITING, 1, 3);
  c_.PollAll();
  const auto actions = Complete(1, 3);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].manifest.checkpoint().global_batch(), 40u);
  EXPECT_EQ(actions[0].manifest.checkpoint().steps_per_epoch(), 3u);
}

TEST_F(CheckpointLifecycleTest, RankZeroIsAskedAndPserversAreToldWhenItIsOver) {
  StartTraining(Config());
  EXPECT_EQ(Asked(0).number(), 1u);
  EXPECT_EQ(Asked(0).every_steps(), 3u);
  EXPECT_FALSE(c_.desired_[c_.workers_[1]].assignment().has_checkpoint());
  EXPECT_EQ(c_.desired_[c_.workers_[0]].assignment().job().config().checkpoint().dir(),
            "/out/checkpoints");

  ReportHosted(0, HostedCut::WRITING, 1, 3);
  c_.PollAll();
  EXPECT_THAT(c_.Status(job_).checkpoint().doing(), HasSubstr("step 3"));
  const auto actions = Complete(1, 3);
  ASSERT_EQ(actions.size(), 1u);
  const OutputAction& write = actions[0];
  EXPECT_EQ(write.number, 1u);
  EXPECT_EQ(write.manifest.job_id(), job_);
  EXPECT_EQ(write.manifest.global_step(), 3u);
  EXPECT_EQ(write.manifest.files_size(), 2);
  EXPECT_EQ(write.config.checkpoint().dir(), "");
  const CheckpointState& state = write.manifest.checkpoint();
  EXPECT_EQ(state.mode(), "sync");
  EXPECT_EQ(state.worker_num(), 2u);
  EXPECT_EQ(state.global_batch(), 20u);
  EXPECT_EQ(state.epoch(), 0u);
  EXPECT_EQ(state.steps_done(), 3u);
  EXPECT_EQ(state.steps_per_epoch(), 5u);
  EXPECT_EQ(state.train_files_size(), 1);
  EXPECT_EQ(state.workers_size(), 2);

  EXPECT_EQ(Over(0), 0u);
  const auto versions = [this] {
    std::vector<uint64_t> all;
    for (const uint64_t id : c_.pservers_) all.push_back(*c_.core_.members().DesiredVersion(id));
    for (const uint64_t id : c_.workers_) all.push_back(*c_.core_.members().DesiredVersion(id));
    return all;
  };
  const std::vector<uint64_t> before = versions();
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  const std::vector<uint64_t> after = versions();
  EXPECT_GT(after[0], before[0]);
  EXPECT_GT(after[1], before[1]);
  EXPECT_GT(after[2], before[2]);  // rank 0 is asked for the next one
  EXPECT_EQ(after[3], before[3]);  // rank 1 is not concerned
  c_.PollAll();
  EXPECT_EQ(Over(0), 1u);
  EXPECT_EQ(Over(1), 1u);
  EXPECT_EQ(Asked(0).number(), 2u);
  EXPECT_EQ(Asked(0).every_steps(), 3u);
  EXPECT_EQ(c_.Status(job_).checkpoint().made(), 1u);
  EXPECT_EQ(c_.Status(job_).checkpoint().dir(), "/out/checkpoints/step-3");
}

TEST_F(CheckpointLifecycleTest, AFailureIsAWarningAndTheJobContinues) {
  StartTraining(Config());
  ReportHosted(1, HostedCut::FAILED, 1, 3);
  c_.PollAll();
  const JobStatus status = c_.Status(job_);
  EXPECT_EQ(status.state(), JOB_RUNNING);
  EXPECT_EQ(status.checkpoint().failed(), 1u);
  ASSERT_EQ(status.warnings_size(), 1);
  EXPECT_THAT(status.warnings(0), HasSubstr("pserver 1: disk full"));
  EXPECT_EQ(Over(0), 1u);
  EXPECT_EQ(Asked(0).number(), 2u);
  EXPECT_EQ(Checkpoints(OutputAction::kDiscard).size(), 1u);
  Wait(12);
  EXPECT_EQ(Checkpoints(OutputAction::kDiscard).size(), 1u);
}

TEST_F(CheckpointLifecycleTest, AFailedWriteIsAWarningAndTheJobContinues) {
  StartTraining(Config());
  ASSERT_EQ(Complete(1, 3).size(), 1u);
  c_.core_.CheckpointWritten(job_, 1, absl::DataLossError("shard 7 is missing"), "", c_.now_);
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_THAT(c_.Status(job_).warnings(0), HasSubstr("shard 7 is missing"));
}

TEST_F(CheckpointLifecycleTest, ACheckpointWithoutProgressIsGivenUp) {
  StartTraining(Config());
  ReportHosted(0, HostedCut::WRITING, 1, 3);
  Wait(110);
  c_.hosted_cuts_[c_.pservers_[0]].set_written_bytes(10);
  Wait(110);
  EXPECT_EQ(c_.Status(job_).checkpoint().failed(), 0u);
  Wait(12);
  EXPECT_EQ(c_.Status(job_).checkpoint().failed(), 1u);
  EXPECT_THAT(c_.Status(job_).checkpoint().last_error(), HasSubstr("pserver 1"));
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
}

TEST_F(CheckpointLifecycleTest, ReportsOfOtherIncarnationsAndJobsAreIgnored) {
  StartTraining(Config());
  ReportWorker(0, 1, 3);
  c_.worker_cuts_[c_.workers_[0]].set_incarnation(999);
  ReportWorker(1, 1, 3);
  c_.worker_cuts_[c_.workers_[1]].set_job_id("other");
  c_.PollAll();
  EXPECT_EQ(c_.Status(job_).checkpoint().doing(), "");
}

TEST_F(CheckpointLifecycleTest, TheStateIsThatOfTheStepAlsoWhenItsReportsComeInTheNextEpoch) {
  StartTraining(Config());
  c_.Advance(absl::Seconds(4));
  c_.Phase(job_, 0, Trained(2, 50)).status().IgnoreError();
  c_.Phase(job_, 1, Trained(2, 50)).status().IgnoreError();
  c_.Phase(job_, 0, Ended(3)).status().IgnoreError();
  ASSERT_EQ(c_.Phase(job_, 1, Ended(3))->phase().epoch(), 1u);
  const auto late = Complete(1, 5);  // the last step of the first epoch
  ASSERT_EQ(late.size(), 1u);
  const CheckpointState& state = late[0].manifest.checkpoint();
  EXPECT_EQ(state.epoch(), 0u);
  EXPECT_EQ(state.steps_done(), 5u);
  EXPECT_EQ(state.result().examples(), 0u);
  EXPECT_EQ(state.epoch_seconds(), 4);
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  c_.Advance(absl::Seconds(3));
  const auto next = Complete(2, 6);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].manifest.checkpoint().epoch(), 1u);
  EXPECT_EQ(next[0].manifest.checkpoint().steps_done(), 1u);
  EXPECT_EQ(next[0].manifest.checkpoint().result().examples(), 100u);
  EXPECT_EQ(next[0].manifest.checkpoint().result().epochs_log_size(), 1);
  EXPECT_EQ(next[0].manifest.checkpoint().epoch_seconds(), 3);
}

// Ends the phases of a job with one epoch up to FINISH.
void EndPhases(FakeCluster* c, const std::string& job) {
  for (const uint32_t rank : {0, 1}) c->Phase(job, rank, Trained(2, 50)).status().IgnoreError();
  for (const uint64_t phase : {3, 4}) {
    for (const uint32_t rank : {0, 1}) c->Phase(job, rank, Ended(phase)).status().IgnoreError();
  }
}

TEST_F(CheckpointLifecycleTest, TheEndOfTheJobGivesAnOpenCheckpointUp) {
  StartTraining(Config(1));
  ReportHosted(0, HostedCut::WRITING, 1, 3);
  c_.PollAll();
  EndPhases(&c_, job_);
  c_.PollAll();
  const auto actions = c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_DONE);
  EXPECT_EQ(c_.Status(job_).checkpoint().failed(), 0u);
  std::vector<OutputAction::Kind> kinds;
  for (const OutputAction& action : actions) kinds.push_back(action.kind);
  EXPECT_THAT(kinds, testing::Contains(OutputAction::kDiscard));
  EXPECT_EQ(kinds.back(), OutputAction::kEnded);
  EXPECT_EQ(actions.back().result.checkpoint().made(), 0u);
}

TEST_F(CheckpointLifecycleTest, CurvesShowACheckpointALossAndARollbackAtOnce) {
  JobConfig config = Config();
  config.mutable_recovery()->set_max_losses(5);
  StartTraining(config);
  const auto tags = [this] {
    std::map<std::string, std::pair<uint64_t, double>> found;
    for (const OutputAction& action : c_.core_.TakeActions()) {
      for (const Scalar& point : action.scalars) found[point.tag] = {point.step, point.value};
    }
    return found;
  };
  ASSERT_EQ(Complete(1, 3).size(), 1u);
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  EXPECT_EQ(tags().count("checkpoint/age_s"), 1u);
  MemberEndedRequest ended;
  ended.set_role(ROLE_PSERVER);
  ended.set_rank(1);
  ended.set_pid(1);
  ended.set_process_space("space");
  c_.core_.members().MemberEnded(ended, c_.now_);
  c_.desired_.erase(c_.pservers_[1]);
  EXPECT_EQ(tags()["recovery/pserver_losses"], std::make_pair(uint64_t{1}, 1.0));
  c_.pservers_[1] = c_.Join(ROLE_PSERVER, 1, /*pid=*/2);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(tags()["recovery/rollbacks"], std::make_pair(uint64_t{1}, 1.0));
}

TEST_F(CheckpointLifecycleTest, TheJobWaitsForTheCheckpointOfItsEnd) {
  for (const bool by_epochs : {false, true}) {
    JobConfig config = Config(1);
    config.mutable_checkpoint()->clear_every_steps();
    config.mutable_checkpoint()->set_at_end(!by_epochs);
    if (by_epochs) config.mutable_checkpoint()->set_every_epochs(1);
    StartTraining(config);
    EXPECT_FALSE(c_.desired_[c_.workers_[0]].assignment().has_checkpoint());
    PhaseReport report = Trained(2, 50);
    report.mutable_end()->set_net_state("scale");
    ASSERT_FALSE(c_.Phase(job_, 0, report)->ready());
    EXPECT_FALSE(c_.Phase(job_, 1, report)->ready()) << "until the cuts have begun";
    c_.PollAll();
    for (const size_t i : {0, 1}) {
      EXPECT_EQ(Ordered(i), std::make_pair(uint64_t{1}, uint64_t{5}));
      ReportHosted(i, HostedCut::WRITING, 1, 5);
    }
    c_.PollAll();
    for (const uint64_t phase : {3, 4}) {
      for (const uint32_t rank : {0, 1}) c_.Phase(job_, rank, Ended(phase)).status().IgnoreError();
    }
    c_.PollAll();
    c_.Advance(absl::Seconds(1));
    c_.PollAll();
    EXPECT_EQ(c_.State(job_), JOB_RUNNING);
    for (const size_t i : {0, 1}) ReportHosted(i, HostedCut::WRITTEN, 1, 5);
    c_.PollAll();
    const auto written = Checkpoints(OutputAction::kCheckpoint);
    ASSERT_EQ(written.size(), 1u);
    const CheckpointState& state = written[0].manifest.checkpoint();
    EXPECT_EQ(state.epoch(), 0u);
    EXPECT_EQ(state.steps_done(), state.steps_per_epoch());
    ASSERT_EQ(state.workers_size(), 2);
    EXPECT_EQ(state.workers(1).train().examples(), 50u);
    EXPECT_EQ(state.workers(1).net_state(), "scale");
    EXPECT_EQ(c_.State(job_), JOB_RUNNING);
    c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
    const auto actions = c_.WriteOutputs();
    EXPECT_EQ(c_.State(job_), JOB_DONE);
    ASSERT_FALSE(actions.empty());
    EXPECT_EQ(actions.back().result.checkpoint().made(), 1u);
    c_.hosted_cuts_.clear();
    Wait(30);
    c_.WriteOutputs();
  }
}

TEST_F(CheckpointLifecycleTest, AStepThatRankZeroNamedIsNotMixedWithTheEndOfTheEpoch) {
  JobConfig config = Config(1);
  config.mutable_checkpoint()->set_at_end(true);
  StartTraining(config);
  // The report of step 3, which named checkpoint 1, is still under way.
  PhaseReport report = Trained(2, 50);
  report.set_checkpoint(1);
  report.set_checkpoint_step(3);
  c_.Phase(job_, 0, report).status().IgnoreError();
  EXPECT_FALSE(c_.Phase(job_, 1, Trained(2, 50))->ready());
  c_.PollAll();
  EXPECT_EQ(Ordered(0).first, 0u);
  ASSERT_EQ(Complete(1, 3).size(), 1u);
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  EXPECT_EQ(c_.Status(job_).checkpoint().dir(), "/out/checkpoints/step-3");
  c_.PollAll();
  EXPECT_EQ(Ordered(0), std::make_pair(uint64_t{2}, uint64_t{5}));
}

TEST_F(CheckpointLifecycleTest, AJobThatKeepsNoneMakesNone) {
  JobConfig config = Config(1);
  config.mutable_checkpoint()->set_keep(0);
  config.mutable_checkpoint()->clear_every_steps();
  StartTraining(config);
  EXPECT_FALSE(c_.Status(job_).has_checkpoint());
  EXPECT_THAT(c_.core_.operators().CheckpointJob(job_, 0, c_.now_).status().message(),
              HasSubstr("keep"));
  EndPhases(&c_, job_);
  c_.PollAll();
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_DONE);
}

TEST_F(CheckpointLifecycleTest, OperatorsAskForACheckpoint) {
  EXPECT_TRUE(absl::IsNotFound(c_.core_.operators().CheckpointJob("no-job", 0, c_.now_).status()));
  JobConfig config = Config();
  config.mutable_checkpoint()->set_every_steps(1000);
  StartTraining(config);
  const auto asked = c_.core_.operators().CheckpointJob(job_, 0, c_.now_);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->number(), 1u);
  EXPECT_FALSE(asked->done());
  EXPECT_FALSE(c_.core_.operators().CheckpointOver(job_, 1));
  c_.PollAll();
  EXPECT_EQ(Asked(0).number(), 1u);
  EXPECT_EQ(Asked(0).every_steps(), 0u);
  ASSERT_EQ(Complete(1, 2).size(), 1u);
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  EXPECT_TRUE(c_.core_.operators().CheckpointOver(job_, 1));
  const auto done = c_.core_.operators().CheckpointJob(job_, 1, c_.now_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->done());
  EXPECT_EQ(done->error(), "");
  EXPECT_EQ(done->dir(), "/out/checkpoints/step-2");
  EXPECT_EQ(done->step(), 2u);
  ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(c_.core_.operators().CheckpointJob(job_, 0, c_.now_).status()));
}

TEST_F(CheckpointLifecycleTest, AJobThatOnlyEvaluatesMakesNone) {
  JobConfig config = FakeCluster::Config(-1, 2);
  config.set_evaluate_only(true);
  const std::string job = c_.Run(config);
  EXPECT_FALSE(c_.Status(job).has_checkpoint());
  EXPECT_EQ(c_.desired_[c_.pservers_[0]].cuts_size(), 0);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(c_.core_.operators().CheckpointJob(job, 0, c_.now_).status()));
}

TEST_F(CheckpointLifecycleTest, TwoJobsCannotShareAFolder) {
  JobConfig config = Config();
  config.set_worker_num(1);
  config.mutable_checkpoint()->set_dir("/shared");
  c_.Run(config);
  config.set_output_dir("/out2");
  EXPECT_TRUE(absl::IsAlreadyExists(c_.Submit(config).status()));
  config.mutable_checkpoint()->set_dir("/own");
  EXPECT_TRUE(c_.Submit(config).ok());
}

// A checkpoint after 7 of 10 steps of two ranks.
std::unique_ptr<ResumePoint> AfterStep7() {
  auto point = std::make_unique<ResumePoint>();
  point->dir = "/out/checkpoints/step-7";
  point->manifest.set_global_step(7);
  CheckpointState* state = point->manifest.mutable_checkpoint();
  state->set_mode("sync");
  state->set_global_step(7);
  state->set_worker_num(2);
  state->set_global_batch(20);
  state->set_epoch(1);
  state->set_steps_done(2);
  state->set_steps_per_epoch(5);
  state->set_epoch_seconds(10);
  SeenFile* file = state->add_train_files();
  file->set_path("train.csv");
  file->set_bytes(2000);
  JobResult* result = state->mutable_result();
  result->set_mode("sync");
  result->set_epochs(1);
  result->set_examples(100);
  result->set_seconds(30);
  result->set_global_step(5);
  EpochResult* epoch = result->add_epochs_log();
  epoch->set_epoch(1);
  epoch->set_examples(100);
  for (const uint64_t examples : {21, 19}) {
    WorkerState* worker = state->add_workers();
    worker->mutable_train()->set_examples(examples);
    worker->set_net_state(absl::StrCat("net ", examples));
  }
  return point;
}

TEST_F(CheckpointLifecycleTest, ExamplesThatWereReplayedAreCountedOnFromTheCheckpoint) {
  auto point = AfterStep7();
  point->manifest.mutable_checkpoint()->mutable_result()->mutable_recovery()->set_examples_replayed(
      40);
  const auto job = c_.Submit(Config(), std::move(point));
  ASSERT_TRUE(job.ok()) << job.status();
  job_ = *job;
  c_.PollAll();
  EXPECT_EQ(c_.Status(job_).recovery().examples_replayed(), 40u);
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_.Phase(job_, rank, Indexed(50, rank)).ok());
  c_.PollAll();
  c_.core_.TakeActions();
  const auto actions = Complete(1, 9);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].manifest.checkpoint().result().recovery().examples_replayed(), 40u);
}

TEST_F(CheckpointLifecycleTest, AResumedJobContinuesEveryRankAndItsResults) {
  const auto job = c_.Submit(Config(), AfterStep7());
  ASSERT_TRUE(job.ok()) << job.status();
  job_ = *job;
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING);
  const JobSpec& spec = c_.desired_[c_.pservers_[0]].host(0);
  EXPECT_EQ(spec.restore().directory(), "/out/checkpoints/step-7");
  EXPECT_EQ(spec.restore().step(), 7u);
  EXPECT_EQ(spec.global_batch(), 20u);
  EXPECT_EQ(Asked(0).every_steps(), 3u);
  EXPECT_EQ(c_.Status(job_).checkpoint().step(), 7u);

  EXPECT_FALSE(c_.Phase(job_, 0)->phase().has_resume());
  c_.Phase(job_, 0, Indexed(50, 0)).status().IgnoreError();
  Phase phase = c_.Phase(job_, 1, Indexed(50, 1))->phase();
  EXPECT_EQ(phase.kind(), Phase::TRAIN);
  EXPECT_EQ(phase.epoch(), 1u);
  EXPECT_EQ(phase.number(), 2u);
  EXPECT_EQ(phase.global_steps(), 5u);
  EXPECT_EQ(phase.first_step(), 5u);
  EXPECT_EQ(phase.skip_steps(), 2u);
  EXPECT_EQ(phase.resume().train().examples(), 19u);
  EXPECT_EQ(phase.resume().net_state(), "net 19");
  EXPECT_EQ(c_.Phase(job_, 0)->phase().resume().train().examples(), 21u);
  c_.Advance(absl::Seconds(4));
  EndPhases(&c_, job_);
  c_.PollAll();
  const auto actions = c_.WriteOutputs();
  ASSERT_FALSE(actions.empty());
  const JobResult& result = actions.back().result;
  EXPECT_EQ(result.status(), "done");
  EXPECT_EQ(result.resumed_from(), "/out/checkpoints/step-7");
  EXPECT_EQ(result.examples(), 200u);
  EXPECT_EQ(result.seconds(), 44);
  EXPECT_EQ(result.global_step(), 10u);
  ASSERT_EQ(result.epochs_log_size(), 2);
  EXPECT_EQ(result.epochs_log(1).epoch(), 2u);
  EXPECT_EQ(result.epochs_log(1).seconds(), 14);
}

TEST_F(CheckpointLifecycleTest, AResumedJobWithOtherDataFails) {
  auto point = AfterStep7();
  point->manifest.mutable_checkpoint()->mutable_train_files(0)->set_sample_crc32c(5);
  job_ = *c_.Submit(Config(), std::move(point));
  c_.PollAll();
  c_.Phase(job_, 0, Indexed(50, 0)).status().IgnoreError();
  c_.Phase(job_, 1, Indexed(50, 1)).status().IgnoreError();
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_THAT(c_.Status(job_).message(),
              testing::AllOf(HasSubstr("train.csv"), HasSubstr("/out/checkpoints/step-7")));
}

TEST_F(CheckpointLifecycleTest, ACheckpointAtTheEndOfAnEpochResumesWithNothingLeft) {
  auto point = AfterStep7();
  point->manifest.mutable_checkpoint()->set_global_step(10);
  point->manifest.mutable_checkpoint()->set_steps_done(5);
  job_ = *c_.Submit(Config(3), std::move(point));
  c_.PollAll();
  c_.Phase(job_, 0, Indexed(50, 0)).status().IgnoreError();
  Phase phase = c_.Phase(job_, 1, Indexed(50, 1))->phase();
  EXPECT_EQ(phase.epoch(), 1u);
  EXPECT_EQ(phase.skip_steps(), 5u);
  c_.Phase(job_, 0, Trained(2, 50)).status().IgnoreError();
  EXPECT_EQ(c_.Phase(job_, 1, Trained(2, 50))->phase().kind(), Phase::EVAL);
  c_.Phase(job_, 0, Ended(3)).status().IgnoreError();
  phase = c_.Phase(job_, 1, Ended(3))->phase();
  EXPECT_EQ(phase.epoch(), 2u);
  EXPECT_EQ(phase.first_step(), 10u);
  EXPECT_EQ(phase.skip_steps(), 0u);
  EXPECT_FALSE(phase.has_resume());
}

// ------------------------------------------------------------------------------- async and Geo

class TaskCheckpointLifecycleTest : public CheckpointLifecycleTest {
 protected:
  static JobConfig Config(int k_steps, uint32_t epochs = 2) {
    JobConfig config = FakeCluster::Config(k_steps, 2, epochs);
    config.mutable_data()->set_shuffle(false);
    config.mutable_data()->clear_eval_files();
    config.mutable_checkpoint()->set_every_s(20);
    config.mutable_checkpoint()->set_save_final_model(false);
    config.set_output_dir("/out");
    return config;
  }
  // Runs the job into its first epoch, of 4 tasks.
  void StartTasks(const JobConfig& config) {
    job_ = c_.Run(config);
    ASSERT_NO_FATAL_FAILURE(ReportIndex());
    c_.PollAll();
    c_.core_.TakeActions();
  }
  void ReportIndex() {
    for (const uint32_t rank : {0, 1}) {
      PhaseReport report = Indexed(50, rank);
      if (rank == 0) {
        DataFile* file = report.mutable_index()->add_files();
        file->set_path("train.csv");
        file->set_bytes(400);
      }
      const auto reply = c_.Phase(job_, rank, report);
      ASSERT_TRUE(reply.ok()) << reply.status();
      if (rank == 1) {
        ASSERT_EQ(reply->phase().kind(), Phase::TRAIN);
      }
    }
  }
  void Lease(uint32_t rank, uint64_t finished = 0) {
    const auto reply = c_.Task(job_, rank, 0, finished);
    ASSERT_TRUE(reply.ok()) << reply.status();
  }
  CutOrder Order(size_t pserver) {
    const PollReply& told = c_.desired_[c_.pservers_[pserver]];
    return told.cuts_size() == 0 ? CutOrder() : told.cuts(0);
  }
  void ReportPart(uint32_t rank, uint64_t number, bool parked) {
    ReportWorker(rank, number, /*step=*/0);
    c_.worker_cuts_[c_.workers_[rank]].set_parked(parked);
  }
  // Rank 0 is in task 1, rank 1 in task 2.
  void ReportCut(size_t pserver, HostedCut::State state, uint64_t number, uint64_t step) {
    ReportHosted(pserver, state, number, step);
    HostedCut& cut = c_.hosted_cuts_[c_.pservers_[pserver]];
    for (const uint32_t rank : {0, 1}) {
      RankPosition* held = cut.add_least();
      held->set_incarnation(c_.Incarnation(job_, rank));
      held->set_sequence(3);
      held->set_task_id(rank + 1);
      held->set_task_end(30);
      held->mutable_totals()->set_examples(30 + rank);
      held->mutable_totals()->set_steps(4);
    }
  }
  // A job that survives losses.
  static JobConfig WithRecovery(int k_steps) {
    JobConfig config = Config(k_steps);
    config.clear_recovery();
    return config;
  }
  // The process of a member of rank 1 is lost.
  void Kill(Role role) {
    MemberEndedRequest ended;
    ended.set_role(role);
    ended.set_rank(1);
    ended.set_pid(1);
    ended.set_process_space("space");
    ended.set_reason("its process was killed by signal 9");
    const uint64_t id = role == ROLE_WORKER ? c_.workers_[1] : c_.pservers_[1];
    c_.core_.members().MemberEnded(ended, c_.now_);
    c_.desired_.erase(id);
    c_.worker_cuts_.erase(id);
  }
  void ReplaceWorker() {
    c_.workers_[1] = c_.Join(ROLE_WORKER, 1, /*pid=*/2);
    c_.PollAll();
  }
};

TEST_F(TaskCheckpointLifecycleTest, AnAsyncJobIsCutAndDescribedOnceAllRanksTrain) {
  StartTasks(Config(0));
  Lease(0);
  Wait(25);
  EXPECT_EQ(Asked(0).number(), 0u) << "rank 1 has not begun the epoch";
  Lease(1);
  c_.steps_done_ = 6;
  Wait(1);
  c_.PollAll();
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(Asked(rank).number(), 1u);
    EXPECT_FALSE(Asked(rank).park());
    EXPECT_EQ(Order(rank).now(), 0u);
  }
  for (const uint32_t rank : {0, 1}) ReportPart(rank, 1, false);
  c_.PollAll();
  const uint64_t step = Order(0).step();
  for (const size_t i : {0, 1}) EXPECT_EQ(Order(i).now(), 1u);
  for (const size_t i : {0, 1}) ReportCut(i, HostedCut::WRITING, 1, step);
  c_.PollAll();
  for (const size_t i : {0, 1}) ReportCut(i, HostedCut::WRITTEN, 1, step);
  c_.PollAll();
  const auto actions = Checkpoints(OutputAction::kCheckpoint);
  ASSERT_EQ(actions.size(), 1u);
  const CheckpointState& state = actions[0].manifest.checkpoint();
  EXPECT_EQ(state.mode(), "async");
  EXPECT_EQ(state.task_bytes(), 100u);
  ASSERT_EQ(state.open_tasks_size(), 4);
  EXPECT_EQ(state.open_tasks(0).first_offset(), 30u);
  EXPECT_EQ(state.open_tasks(1).first_offset(), 30u);
  EXPECT_EQ(state.open_tasks(2).first_offset(), 0u);
  ASSERT_EQ(state.workers_size(), 2);
  EXPECT_EQ(state.workers(1).train().examples(), 31u);
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  c_.PollAll();
  EXPECT_EQ(Order(0).over(), 1u);
  EXPECT_EQ(Order(0).now(), 0u);
  EXPECT_EQ(Asked(1).number(), 0u);
  EXPECT_EQ(c_.Status(job_).checkpoint().made(), 1u);
}

TEST_F(TaskCheckpointLifecycleTest, AnEpochDoesNotEndBetweenTheQuestionAndTheCuts) {
  for (const bool answered : {true, false}) {
    StartTasks(Config(0));
    for (const uint32_t rank : {0, 1}) Lease(rank);
    Wait(25);
    ASSERT_EQ(Asked(0).number(), 1u);
    for (const uint64_t task : {1, 3, 4}) Lease(0, task);
    Lease(1, 2);
    ASSERT_TRUE(c_.Phase(job_, 0, Trained(2, 10)).ok());
    const auto held = c_.Phase(job_, 1, Trained(2, 10));
    ASSERT_TRUE(held.ok());
    EXPECT_FALSE(held->ready());
    if (answered) {
      for (const uint32_t rank : {0, 1}) ReportPart(rank, 1, false);
      c_.PollAll();
      EXPECT_FALSE(c_.Phase(job_, 0)->ready());
      for (const size_t i : {0, 1}) ReportCut(i, HostedCut::WRITING, 1, Order(0).step());
      c_.PollAll();
    } else {
      Wait(200);  // limits.wait_s
      EXPECT_EQ(c_.Status(job_).checkpoint().failed(), 1u);
    }
    const auto next = c_.Phase(job_, 0);
    ASSERT_TRUE(next->ready()) << answered;
    EXPECT_EQ(next->phase().epoch(), 1u);
    ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
    c_.hosted_cuts_.clear();
    c_.worker_cuts_.clear();
    Wait(30);
    c_.WriteOutputs();
  }
}

TEST_F(TaskCheckpointLifecycleTest, GeoRanksParkAndAreReleased) {
  StartTasks(Config(5));
  for (const uint32_t rank : {0, 1}) Lease(rank);
  Wait(25);
  const uint64_t step = 1;
  for (const uint32_t rank : {0, 1}) {
    EXPECT_TRUE(Asked(rank).park());
    EXPECT_FALSE(Asked(rank).released());
    EXPECT_EQ(Asked(rank).directory(), "/out/checkpoints/step-1");
    EXPECT_EQ(Asked(rank).save_id().size(), 16u);
    ReportPart(rank, 1, true);
  }
  c_.PollAll();
  EXPECT_EQ(Order(1).now(), 1u);
  for (const size_t i : {0, 1}) ReportCut(i, HostedCut::WRITTEN, 1, step);
  c_.PollAll();
  EXPECT_TRUE(Asked(0).released());
  EXPECT_TRUE(Asked(1).released());
  EXPECT_TRUE(Checkpoints(OutputAction::kCheckpoint).empty());
  for (const uint32_t rank : {0, 1}) ReportPart(rank, 1, false);
  c_.PollAll();
  EXPECT_EQ(Checkpoints(OutputAction::kCheckpoint).size(), 1u);
}

TEST_F(TaskCheckpointLifecycleTest, TheJobWaitsForTheCheckpointOfItsEnd) {
  JobConfig config = Config(0, /*epochs=*/1);
  config.mutable_checkpoint()->set_every_s(0);
  config.mutable_checkpoint()->set_at_end(true);
  StartTasks(config);
  for (const uint32_t rank : {0, 1}) Lease(rank);
  for (const uint64_t task : {1, 3, 4}) Lease(0, task);
  Lease(1, 2);
  for (const uint32_t rank : {0, 1}) {
    PhaseReport report = Trained(2, 10);
    report.mutable_train()->set_steps(208);
    ASSERT_TRUE(c_.Phase(job_, rank, report).ok());
  }
  c_.PollAll();
  EXPECT_EQ(Asked(0).number(), 0u) << "the reports say all";
  EXPECT_EQ(Order(0).now(), 1u);
  EXPECT_EQ(Order(0).step(), 208u);
  for (const size_t i : {0, 1}) ReportCut(i, HostedCut::WRITING, 1, 208);
  Wait(5);
  EXPECT_TRUE(Checkpoints(OutputAction::kEnded).empty());
  for (const size_t i : {0, 1}) ReportCut(i, HostedCut::WRITTEN, 1, 208);
  Wait(2);
  const auto actions = Checkpoints(OutputAction::kCheckpoint);
  ASSERT_EQ(actions.size(), 1u);
  const CheckpointState& state = actions[0].manifest.checkpoint();
  EXPECT_EQ(state.open_tasks_size(), 0);
  ASSERT_EQ(state.workers_size(), 2);
  EXPECT_EQ(state.workers(1).train().steps(), 208u);
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  Wait(2);
  c_.WriteOutputs();
  EXPECT_EQ(c_.Status(job_).result().status(), "done");
}

TEST_F(TaskCheckpointLifecycleTest, AHeldEpochEndsWhenARankIsLostAndTheNextCheckpointIsMade) {
  for (const int k_steps : {0, 5}) {
    StartTasks(WithRecovery(k_steps));
    for (const uint32_t rank : {0, 1}) Lease(rank);
    Wait(25);
    ASSERT_EQ(Asked(0).number(), 1u);
    for (const uint64_t task : {1, 3, 4}) Lease(0, task);
    Lease(1, 2);
    ASSERT_TRUE(c_.Phase(job_, 0, Trained(2, 10)).ok());
    ReportPart(0, 1, /*parked=*/k_steps > 0);
    c_.PollAll();
    EXPECT_FALSE(c_.Phase(job_, 1, Trained(2, 10))->ready());
    Kill(ROLE_WORKER);
    EXPECT_EQ(c_.Status(job_).checkpoint().failed(), 1u);
    EXPECT_THAT(c_.Status(job_).checkpoint().last_error(), HasSubstr("rank 1"));
    const auto next = c_.Phase(job_, 0);
    ASSERT_TRUE(next->ready());
    EXPECT_EQ(next->phase().epoch(), 1u);
    c_.PollAll();
    EXPECT_EQ(Asked(0).number(), 0u) << "a parked rank is no longer wanted";
    EXPECT_EQ(Order(0).over(), 1u);

    ASSERT_TRUE(c_.Task(job_, 0, 1, 0).ok());
    Wait(25);
    EXPECT_EQ(Asked(0).number(), 0u) << "nobody serves rank 1";
    ReplaceWorker();
    EXPECT_EQ(c_.Phase(job_, 1, SeenAgain(50, 1))->phase().epoch(), 1u);
    Wait(2);
    EXPECT_EQ(Asked(0).number(), 0u) << "rank 1 does not train yet";
    ASSERT_TRUE(c_.Task(job_, 1, 1, 0).ok());
    Wait(2);
    for (const uint32_t rank : {0, 1}) EXPECT_EQ(Asked(rank).number(), 2u);
    ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
    c_.worker_cuts_.clear();
    Wait(30);
    c_.WriteOutputs();
    // The next round begins with first processes.
    MemberEndedRequest ended;
    ended.set_role(ROLE_WORKER);
    ended.set_rank(1);
    ended.set_pid(2);
    ended.set_process_space("space");
    c_.core_.members().MemberEnded(ended, c_.now_);
    c_.workers_[1] = c_.Join(ROLE_WORKER, 1);
    c_.PollAll();
  }
}

TEST_F(TaskCheckpointLifecycleTest, NoCheckpointIsAskedOfALifeThatDidNotTrainInTheEpoch) {
  StartTasks(WithRecovery(0));
  for (const uint32_t rank : {0, 1}) Lease(rank);
  for (const uint64_t task : {1, 3, 4}) Lease(0, task);
  Lease(1, 2);
  ASSERT_TRUE(c_.Phase(job_, 1, Trained(2, 10)).ok());
  Kill(ROLE_WORKER);
  ReplaceWorker();
  EXPECT_FALSE(c_.Phase(job_, 1, SeenAgain(50, 1))->ready())
      << "its earlier life has ended the epoch";
  Wait(25);
  EXPECT_EQ(Asked(0).number(), 0u);
  ASSERT_TRUE(c_.Phase(job_, 0, Trained(2, 10))->ready());
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(c_.Task(job_, rank, 1, 0).ok());
  Wait(2);
  EXPECT_EQ(Asked(1).number(), 1u);
}

TEST_F(TaskCheckpointLifecycleTest, ACheckpointAfterAReplacementCountsFromWhereTheNewLifeBegan) {
  StartTasks(WithRecovery(0));
  for (const uint32_t rank : {0, 1}) Lease(rank);
  RankPosition least;
  least.set_incarnation(c_.Incarnation(job_, 1));
  least.set_sequence(3);
  least.set_task_id(2);
  least.set_task_end(30);
  least.mutable_totals()->set_examples(30);
  least.mutable_totals()->set_steps(3);
  RankPosition most = least;
  most.set_sequence(5);
  most.set_task_end(50);
  most.mutable_totals()->set_examples(50);
  c_.held_[c_.pservers_[0]] = {RankPosition(), least};
  c_.held_[c_.pservers_[1]] = {RankPosition(), most};
  Kill(ROLE_WORKER);
  ReplaceWorker();
  EXPECT_EQ(c_.Phase(job_, 1, SeenAgain(50, 1))->phase().resume().train().examples(), 30u);
  const auto task = c_.Task(job_, 1, 0, 0);
  EXPECT_EQ(task->task().id(), 2u);
  EXPECT_EQ(task->task().first_offset(), 30u);
  Wait(25);
  for (const uint32_t rank : {0, 1}) {
    ASSERT_EQ(Asked(rank).number(), 1u);
    ReportPart(rank, 1, false);
  }
  c_.PollAll();
  // Pserver 0 has a frame of the new life; of pserver 1, the newest is one of the lost life.
  for (const size_t i : {0, 1}) ReportCut(i, HostedCut::WRITTEN, 1, Order(0).step());
  *c_.hosted_cuts_[c_.pservers_[1]].mutable_least(1) = most;
  c_.PollAll();
  const auto actions = Checkpoints(OutputAction::kCheckpoint);
  ASSERT_EQ(actions.size(), 1u);
  const CheckpointState& state = actions[0].manifest.checkpoint();
  EXPECT_EQ(state.workers(1).train().examples(), 30u);
  EXPECT_EQ(state.workers(1).train().steps(), 3u);
  ASSERT_EQ(state.open_tasks_size(), 4);
  EXPECT_EQ(state.open_tasks(1).id(), 2u);
  EXPECT_EQ(state.open_tasks(1).first_offset(), 30u);
}

TEST_F(TaskCheckpointLifecycleTest, ARollbackContinuesTheOpenTasksOfTheNewestCheckpoint) {
  StartTasks(WithRecovery(0));
  for (const uint32_t rank : {0, 1}) Lease(rank);
  c_.steps_done_ = 6;  // of each worker
  Wait(25);
  for (const uint32_t rank : {0, 1}) ReportPart(rank, 1, false);
  c_.PollAll();
  for (const size_t i : {0, 1}) ReportCut(i, HostedCut::WRITTEN, 1, Order(0).step());
  c_.PollAll();
  c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
  c_.steps_done_ = 10;
  c_.hosted_cuts_.clear();
  c_.worker_cuts_.clear();
  Wait(25);
  ASSERT_EQ(Asked(0).number(), 2u);
  // A worker that is lost while shards wait takes with it what they had acknowledged.
  Kill(ROLE_PSERVER);
  Kill(ROLE_WORKER);
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  c_.pservers_[1] = c_.Join(ROLE_PSERVER, 1, /*pid=*/2);
  c_.workers_[1] = c_.Join(ROLE_WORKER, 1, /*pid=*/2);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(c_.desired_[c_.pservers_[0]].host(0).restore().directory(), "/out/checkpoints/step-6");
  const Recovery counts = c_.Status(job_).recovery();
  EXPECT_EQ(counts.rollbacks(), 1u);
  EXPECT_EQ(counts.updates_lost(), 0u) << "they are made again";
  EXPECT_EQ(c_.Status(job_).checkpoint().failed(), 1u);
  EXPECT_EQ(Asked(0).number(), 0u);
  EXPECT_EQ(Order(0).over(), 2u);

  ASSERT_NO_FATAL_FAILURE(ReportIndex());
  const Phase phase = c_.Phase(job_, 1)->phase();
  EXPECT_EQ(phase.resume().train().examples(), 31u);
  EXPECT_EQ(phase.first_step(), 4u);
  for (const uint32_t rank : {0, 1}) {
    const auto task = c_.Task(job_, rank, 0, 0);
    EXPECT_EQ(task->task().id(), rank + 1);
    EXPECT_EQ(task->task().first_offset(), 30u);
  }
  Wait(25);
  for (const uint32_t rank : {0, 1}) EXPECT_EQ(Asked(rank).number(), 3u);
}

TEST_F(CheckpointLifecycleTest, ALateReportOfAnEarlierLifeDoesNotCount) {
  StartTraining(Config());
  PollRequest late;
  late.set_member_id(c_.workers_[0]);
  late.mutable_progress()->set_job_id(job_);
  late.mutable_progress()->set_incarnation(c_.Incarnation(job_, 0) - 1);
  late.mutable_progress()->set_step(10);  // the last one of the job
  ASSERT_TRUE(c_.core_.Poll(late, c_.now_).ok());
  c_.Advance(absl::Seconds(1));
  EXPECT_EQ(c_.Status(job_).global_step(), 0u);
  EXPECT_TRUE(c_.core_.operators().CheckpointJob(job_, 0, c_.now_).ok());
}

// A job whose only shard is on the second of two pservers.
class OnePserverWithShardsTest : public testing::TestWithParam<int> {
 protected:
  static SchedulerCore::Options OneShard() {
    SchedulerCore::Options options = FakeCluster::Options(2, 1);
    options.place = [](const std::vector<std::string>& addresses, JobSpec* spec) {
      Route* const route = spec->mutable_route();
      route->set_generation(1);
      route->mutable_pservers()->Assign(addresses.begin(), addresses.end());
      route->clear_tables();
      route->add_tables()->add_owner(1);
      return absl::OkStatus();
    };
    return options;
  }
};

TEST_P(OnePserverWithShardsTest, CompletesItsCheckpoints) {
  FakeCluster c(OneShard());
  c.JoinAll(2, 1);
  JobConfig config = FakeCluster::Config(GetParam(), 1, 2);
  config.set_output_dir("/out");
  const std::string job = c.Run(config);
  PhaseReport report = Indexed(50, 0, 1);
  DataFile* const file = report.mutable_index()->add_files();
  file->set_path("train.csv");
  file->set_bytes(1000);
  ASSERT_TRUE(c.Phase(job, 0, report).ok());
  if (GetParam() >= 0) {
    ASSERT_TRUE(c.Task(job, 0, 0, 0).ok());
  }
  ASSERT_TRUE(c.core_.operators().CheckpointJob(job, 0, c.now_).ok());
  c.Advance(absl::Seconds(1));
  c.PollAll();
  const uint64_t step = GetParam() < 0 ? 3 : 1;
  WorkerCut part;
  part.set_job_id(job);
  part.set_incarnation(c.Incarnation(job, 0));
  part.set_checkpoint(1);
  part.set_step(GetParam() < 0 ? step : 0);
  part.set_parked(GetParam() > 0);
  c.worker_cuts_[c.workers_[0]] = part;
  c.PollAll();
  HostedCut cut;
  cut.set_checkpoint(1);
  cut.set_state(HostedCut::WRITTEN);
  cut.set_step(step);
  cut.add_least();
  c.hosted_cuts_[c.pservers_[1]] = cut;
  c.PollAll();
  c.worker_cuts_[c.workers_[0]].set_parked(false);
  c.PollAll();
  int written = 0;
  for (const OutputAction& action : c.core_.TakeActions())
    written += action.kind == OutputAction::kCheckpoint;
  EXPECT_EQ(written, 1) << c.Status(job).checkpoint().DebugString();
}

INSTANTIATE_TEST_SUITE_P(Modes, OnePserverWithShardsTest, testing::Values(-1, 0, 2));

}  // namespace
}  // namespace sluice
