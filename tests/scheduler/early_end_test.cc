// Jobs that the user's program ends before their last epoch is over, in a whole core with fake
// members: sync and async, with several programs that end it, losses and another scheduler.
#include <gmock/gmock.h>

#include "tests/scheduler/restart_fixture.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two ranks with 50 examples each: 5 global steps an epoch in sync, ten tasks in async.
class EarlyEndTest : public RestartTest {
 protected:
  EarlyEndTest() { adopts_ = true; }

  static JobConfig Config(int k_steps, uint32_t epochs = 3) {
    JobConfig config = FakeCluster::Config(k_steps, 2, epochs);
    config.mutable_recovery()->set_max_losses(100);
    return config;
  }
  static JobConfig WithCheckpoints(JobConfig config) {
    config.mutable_checkpoint()->set_keep(2);
    config.mutable_checkpoint()->set_at_end(true);
    config.set_output_dir("/out");
    return config;
  }
  // Runs the job up to its first TRAIN phase, which has number 2.
  void Begin(const JobConfig& config) {
    sync_ = !config.strategy().a_sync();
    c_->JoinAll(2, 2);
    job_ = Run(config);
    for (const uint32_t rank : {0, 1}) {
      PhaseReport report = Indexed(50, rank);
      if (!sync_ && rank == 0) {
        report.mutable_index()->add_files()->set_path("train.csv");
        report.mutable_index()->mutable_files(0)->set_bytes(1000);
      }
      c_->Phase(job_, rank, report).status().IgnoreError();
    }
    ASSERT_EQ(c_->Phase(job_, 0)->phase().kind(), Phase::TRAIN);
    c_->PollAll();
  }
  EndJobRequest Request(uint32_t rank, uint64_t last_step) {
    EndJobRequest request;
    request.set_job_id(job_);
    request.set_member_id(WorkerOf(rank));
    request.set_rank(rank);
    request.set_incarnation(c_->Incarnation(job_, rank));
    request.set_last_step(last_step);
    return request;
  }
  absl::Status EndJob(uint32_t rank, uint64_t last_step) {
    const absl::Status status = c_->core_.EndJob(Request(rank, last_step), c_->now_);
    c_->PollAll();
    return status;
  }
  uint64_t WorkerOf(uint32_t rank) {
    for (const uint64_t id : c_->workers_) {
      const PollReply& told = c_->desired_[id];
      if (told.assignment().job().job_id() == job_ && told.assignment().rank() == rank) return id;
    }
    return 0;
  }
  const WorkerAssignment& AssignmentOf(uint32_t rank) {
    return c_->desired_[WorkerOf(rank)].assignment();
  }
  // A rank's report of a TRAIN phase that ends after `steps` of it.
  static PhaseReport TrainedSteps(uint64_t number, uint64_t steps) {
    PhaseReport report = Trained(number, 10 * steps);
    report.mutable_train()->set_steps(steps);
    return report;
  }
  // Both ranks report the end of the phase. Returns the next one.
  Phase EndPhase(const PhaseReport& report) {
    c_->Phase(job_, 0, report).status().IgnoreError();
    const auto reply = c_->Phase(job_, 1, report);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply->phase();
  }
  // From the phase after TRAIN on.
  JobResult Finish(Phase phase) {
    while (phase.kind() == Phase::EVAL || phase.kind() == Phase::SAVE) {
      kinds_.push_back(phase.kind());
      phase = EndPhase(Ended(phase.number()));
    }
    c_->PollAll();
    for (OutputAction& action : c_->WriteOutputs()) {
      if (action.kind == OutputAction::kEnded) return action.result;
    }
    ADD_FAILURE() << "the job has not ended: " << c_->Status(job_).DebugString();
    return JobResult();
  }
  void Kill(Role role, uint32_t rank) {
    MemberEndedRequest ended;
    ended.set_role(role);
    ended.set_rank(rank);
    ended.set_pid(1);
    ended.set_process_space("space");
    ended.set_reason("its process was killed by signal 9");
    ASSERT_TRUE(c_->core_.members().MemberEnded(ended, c_->now_));
    c_->desired_.erase((role == ROLE_WORKER ? c_->workers_ : c_->pservers_)[rank]);
  }
  // Another scheduler takes over; all members register again with what they hold.
  void TakeOver() {
    std::vector<std::pair<RegisterRequest, PollReply>> members;
    const auto add = [&](Role role, const std::vector<uint64_t>& ids) {
      for (uint32_t rank = 0; rank < ids.size(); ++rank) {
        const PollReply& told = c_->desired_[ids[rank]];
        RegisterRequest request = FakeCluster::Registration(role, rank);
        const JobSpec& spec = role == ROLE_PSERVER ? told.host(0) : told.assignment().job();
        HeldJob* const held = request.add_holds();
        held->set_job_id(job_);
        held->set_instance(spec.instance());
        held->set_generation(spec.route().generation());
        held->set_rank(told.assignment().rank());
        held->set_incarnation(told.assignment().incarnation());
        members.emplace_back(request, told);
      }
    };
    add(ROLE_PSERVER, c_->pservers_);
    add(ROLE_WORKER, c_->workers_);
    const auto incarnations = c_->incarnations_;
    const CoreOfKnownCallers::Passes passes = c_->core_.passes();
    Restart();
    c_->incarnations_ = incarnations;
    c_->core_.passes() = passes;
    for (auto& [request, told] : members) {
      const uint64_t id = c_->Join(request);
      (request.role() == ROLE_WORKER ? c_->workers_ : c_->pservers_).push_back(id);
      c_->desired_[id] = told;
      c_->desired_[id].set_version(0);
    }
    c_->PollAll();
  }
  // The pservers write their parts of checkpoint `number`.
  std::optional<Manifest> WriteCheckpoint(uint64_t number) {
    for (const uint64_t id : c_->pservers_) {
      HostedCut& cut = c_->hosted_cuts_[id];
      cut.set_checkpoint(number);
      cut.set_state(HostedCut::WRITTEN);
      cut.set_step(c_->desired_[id].cuts(0).step());
      cut.add_files()->set_name(absl::StrCat("p-", id == c_->pservers_[0] ? 0 : 1, ".shard"));
    }
    c_->PollAll();
    for (OutputAction& action : c_->core_.TakeActions()) {
      if (action.kind == OutputAction::kCheckpoint) return action.manifest;
    }
    return std::nullopt;
  }

  bool sync_ = true;
  std::string job_;
  std::vector<Phase::Kind> kinds_;
};

TEST_F(EarlyEndTest, SyncEndsAfterTheLastStepAndIsEvaluatedAndSaved) {
  Begin(Config(-1));
  ASSERT_TRUE(EndJob(1, 3).ok());
  for (const uint32_t rank : {0, 1}) EXPECT_EQ(AssignmentOf(rank).early_end().last_step(), 3u);
  // The step that the others have begun belongs to nobody's report.
  const JobResult result = Finish(EndPhase(TrainedSteps(2, 3)));
  EXPECT_THAT(kinds_, ElementsAre(Phase::EVAL, Phase::SAVE));
  EXPECT_EQ(result.status(), "done");
  EXPECT_EQ(result.stopped_by(), "program");
  EXPECT_FALSE(result.stopped_early());
  EXPECT_EQ(result.global_step(), 3u);
  EXPECT_EQ(result.examples(), 60u);
  ASSERT_EQ(result.epochs_log_size(), 1);
  EXPECT_TRUE(result.epochs_log(0).has_eval());
}

TEST_F(EarlyEndTest, TheRanksReadTheDataAsForAWholeEpoch) {
  Begin(Config(-1));
  ASSERT_TRUE(EndJob(1, 3).ok());
  EXPECT_EQ(c_->Phase(job_, 0)->phase().global_steps(), 5u);
}

TEST_F(EarlyEndTest, AsyncAndGeoLeaseNoMoreTasksAndNeedNoneToBeFinished) {
  for (const int k_steps : {0, 4}) {
    SCOPED_TRACE(k_steps);
    records_.clear();
    kinds_.clear();
    Start();
    Begin(Config(k_steps));
    const auto first = c_->Task(job_, 0, 0, 0, 1), second = c_->Task(job_, 1, 0, 0, 1);
    ASSERT_EQ(second->kind(), NextTaskReply::TASK);
    ASSERT_TRUE(EndJob(0, 0).ok());
    EXPECT_TRUE(AssignmentOf(1).has_early_end());
    EXPECT_EQ(c_->Task(job_, 0, 0, first->task().id(), 2, 10)->kind(), NextTaskReply::EPOCH_DONE);
    EXPECT_EQ(c_->Task(job_, 1, 0, 0, 2)->kind(), NextTaskReply::EPOCH_DONE);
    c_->Phase(job_, 0, TrainedSteps(2, 1)).status().IgnoreError();
    const auto next = c_->Phase(job_, 1, TrainedSteps(2, 2));
    ASSERT_TRUE(next.ok()) << next.status();
    const JobResult result = Finish(next->phase());
    EXPECT_THAT(kinds_, ElementsAre(Phase::EVAL, Phase::SAVE));
    EXPECT_EQ(result.stopped_by(), "program");
    EXPECT_EQ(result.examples(), 30u);
    EXPECT_EQ(result.epochs_log_size(), 1);
  }
}

TEST_F(EarlyEndTest, TheSmallestOfSeveralLastStepsCounts) {
  Begin(Config(-1));
  ASSERT_TRUE(EndJob(1, 4).ok());
  ASSERT_TRUE(EndJob(0, 3).ok());
  ASSERT_TRUE(EndJob(1, 4).ok());  // repeated
  for (const uint32_t rank : {0, 1}) EXPECT_EQ(AssignmentOf(rank).early_end().last_step(), 3u);
  EXPECT_EQ(Finish(EndPhase(TrainedSteps(2, 3))).global_step(), 3u);
}

TEST_F(EarlyEndTest, AnEpochWithoutAStepIsNotCountedAndNotEvaluatedAgain) {
  Begin(Config(-1));
  Phase phase = EndPhase(TrainedSteps(2, 5));
  ASSERT_EQ(phase.kind(), Phase::EVAL);
  phase = EndPhase(Ended(phase.number()));
  ASSERT_EQ(phase.kind(), Phase::TRAIN);
  c_->PollAll();
  ASSERT_TRUE(EndJob(0, 5).ok());
  const JobResult result = Finish(EndPhase(TrainedSteps(phase.number(), 0)));
  EXPECT_THAT(kinds_, ElementsAre(Phase::SAVE));
  EXPECT_EQ(result.epochs(), 1u);
  EXPECT_EQ(result.epochs_log_size(), 1);
  EXPECT_EQ(result.examples(), 100u);
  EXPECT_EQ(result.stopped_by(), "program");
}

TEST_F(EarlyEndTest, AnEpochThatIsNotToBeEvaluatedIsEvaluatedAsTheLastOne) {
  JobConfig config = Config(-1, 5);
  config.mutable_eval()->set_every_epochs(5);
  Begin(config);
  Phase phase = EndPhase(TrainedSteps(2, 5));
  ASSERT_EQ(phase.kind(), Phase::TRAIN);
  c_->PollAll();
  ASSERT_TRUE(EndJob(0, 7).ok());
  phase = EndPhase(TrainedSteps(phase.number(), 2));
  EXPECT_EQ(phase.kind(), Phase::EVAL);
  EXPECT_EQ(phase.epoch(), 1u);
  const JobResult result = Finish(phase);
  EXPECT_THAT(kinds_, ElementsAre(Phase::EVAL, Phase::SAVE));
  EXPECT_EQ(result.epochs(), 2u);
  EXPECT_TRUE(result.epochs_log(1).has_eval());
}

TEST_F(EarlyEndTest, AJobWithoutAnyStepIsDoneAndSaved) {
  Begin(WithCheckpoints(Config(-1)));
  ASSERT_TRUE(EndJob(0, 0).ok());
  const JobResult result = Finish(EndPhase(TrainedSteps(2, 0)));
  EXPECT_THAT(kinds_, ElementsAre(Phase::EVAL, Phase::SAVE));
  EXPECT_EQ(result.status(), "done");
  EXPECT_EQ(result.examples(), 0u);
  EXPECT_TRUE(result.warnings().empty()) << result.warnings(0);
}

TEST_F(EarlyEndTest, TheBestModelOfTheEvaluationsIsTheModel) {
  JobConfig config = Config(-1);
  config.mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  Begin(config);
  ASSERT_TRUE(EndJob(0, 2).ok());
  const JobResult result = Finish(EndPhase(TrainedSteps(2, 2)));
  EXPECT_THAT(kinds_, ElementsAre(Phase::EVAL, Phase::SAVE));
  EXPECT_EQ(result.best().epoch(), 1u);
}

TEST_F(EarlyEndTest, AnImpossibleLastStepAndOtherPhasesAreRefused) {
  Begin(Config(-1));
  EXPECT_TRUE(absl::IsInvalidArgument(EndJob(0, 6)));
  EndJobRequest stale = Request(0, 3);
  stale.set_incarnation(stale.incarnation() - 1);
  EXPECT_TRUE(absl::IsAborted(c_->core_.EndJob(stale, c_->now_)));
  EndJobRequest other = Request(0, 3);
  other.set_rank(1);
  EXPECT_TRUE(absl::IsAborted(c_->core_.EndJob(other, c_->now_)));
  other = Request(0, 3);
  other.set_secret("wrong");
  EXPECT_TRUE(absl::IsPermissionDenied(c_->core_.workers().EndJob(other, c_->now_)));
  EXPECT_EQ(EndPhase(TrainedSteps(2, 5)).kind(), Phase::EVAL);
  EXPECT_TRUE(absl::IsFailedPrecondition(EndJob(0, 5)));
  EXPECT_FALSE(AssignmentOf(0).has_early_end());
}

TEST_F(EarlyEndTest, AnInterruptedProgramCancelsTheJob) {
  Begin(Config(-1));
  EndJobRequest request = Request(1, 0);
  request.set_cancels(true);
  ASSERT_TRUE(c_->core_.EndJob(request, c_->now_).ok());
  EXPECT_TRUE(c_->core_.EndJob(request, c_->now_).ok());  // its answer was lost
  c_->PollAll();
  c_->WriteOutputs();
  EXPECT_EQ(c_->State(job_), JOB_CANCELLED);
  EXPECT_THAT(c_->Status(job_).message(), HasSubstr("interrupted"));
}

TEST_F(EarlyEndTest, AnotherSchedulerEndsTheJobThere) {
  for (const bool reported : {false, true}) {
    SCOPED_TRACE(reported);
    records_.clear();
    kinds_.clear();
    Start();
    Begin(Config(-1));
    ASSERT_TRUE(EndJob(1, 3).ok());
    if (reported) c_->Phase(job_, 0, TrainedSteps(2, 3)).status().IgnoreError();
    TakeOver();
    ASSERT_EQ(c_->State(job_), JOB_RUNNING) << c_->Status(job_).message();
    EXPECT_EQ(AssignmentOf(0).early_end().last_step(), 3u);
    EXPECT_EQ(c_->Status(job_).recovery().rollbacks(), 0u);
    const JobResult result = Finish(EndPhase(TrainedSteps(2, 3)));
    EXPECT_THAT(kinds_, ElementsAre(Phase::EVAL, Phase::SAVE));
    EXPECT_EQ(result.global_step(), 3u);
    EXPECT_EQ(result.examples(), 60u);
    EXPECT_EQ(result.stopped_by(), "program");
  }
}

TEST_F(EarlyEndTest, AnotherSchedulerGoesOnAfterTheTraining) {
  Begin(Config(-1));
  ASSERT_TRUE(EndJob(1, 3).ok());
  const Phase eval = EndPhase(TrainedSteps(2, 3));
  ASSERT_EQ(eval.kind(), Phase::EVAL);
  TakeOver();
  EXPECT_EQ(c_->Phase(job_, 0)->phase().number(), eval.number());
  const JobResult result = Finish(eval);
  EXPECT_THAT(kinds_, ElementsAre(Phase::EVAL, Phase::SAVE));
  EXPECT_EQ(result.stopped_by(), "program");
}

TEST_F(EarlyEndTest, AnotherSchedulerKnowsTheTasksOfAsync) {
  Begin(Config(0));
  const auto task = c_->Task(job_, 0, 0, 0, 1);
  c_->Task(job_, 1, 0, 0, 1).status().IgnoreError();
  ASSERT_TRUE(EndJob(0, 0).ok());
  EXPECT_EQ(c_->Task(job_, 0, 0, task->task().id(), 2, 10)->kind(), NextTaskReply::EPOCH_DONE);
  c_->Phase(job_, 0, TrainedSteps(2, 1)).status().IgnoreError();
  TakeOver();
  ASSERT_EQ(c_->State(job_), JOB_RUNNING) << c_->Status(job_).message();
  EXPECT_EQ(c_->Status(job_).recovery().rollbacks(), 0u);
  EXPECT_EQ(c_->Task(job_, 1, 0, 0, 2)->kind(), NextTaskReply::EPOCH_DONE);
  EXPECT_EQ(Finish(EndPhase(TrainedSteps(2, 1))).examples(), 20u);
}

TEST_F(EarlyEndTest, AWorkerThatTakesOverARankEndsThereToo) {
  for (const uint64_t committed : {2, 3, 4}) {
    SCOPED_TRACE(committed);
    records_.clear();
    Start();
    Begin(Config(-1));
    ASSERT_TRUE(EndJob(1, 3).ok());
    Kill(ROLE_WORKER, 0);
    c_->workers_[0] = c_->Join(ROLE_WORKER, 0, /*pid=*/2);
    for (const uint64_t id : c_->pservers_) {
      std::vector<RankPosition>& held = c_->held_[id] = std::vector<RankPosition>(2);
      held[0].set_committed(committed);
      held[0].mutable_totals()->set_examples(10 * committed);
      held[0].mutable_totals_before()->set_examples(10 * (committed - 1));
    }
    c_->PollAll();
    ASSERT_EQ(AssignmentOf(0).early_end().last_step(), 3u) << c_->Status(job_).DebugString();
    const Phase phase = c_->Phase(job_, 0, SeenAgain(50, 0))->phase();
    // A push of the step after the last one counts for nothing.
    EXPECT_EQ(phase.skip_steps(), std::min<uint64_t>(committed, 3));
    EXPECT_EQ(phase.commit_again(), committed == 4 ? 0 : committed);
    EXPECT_EQ(phase.resume().train().examples(), 10 * std::min<uint64_t>(committed, 3));
    EXPECT_EQ(Finish(EndPhase(TrainedSteps(2, 3))).examples(), 60u);
    c_->held_.clear();
  }
}

// It has committed a step for which the program that ends the job makes no push.
TEST_F(EarlyEndTest, AWorkerThatHasTakenOverBeforeTheEndWasKnownCountsNoStepThatNeverCloses) {
  for (const bool begun : {false, true}) {
    SCOPED_TRACE(begun);
    records_.clear();
    Start();
    Begin(Config(-1));
    Kill(ROLE_WORKER, 0);
    c_->workers_[0] = c_->Join(ROLE_WORKER, 0, /*pid=*/2);
    for (const uint64_t id : c_->pservers_) {
      std::vector<RankPosition>& held = c_->held_[id] = std::vector<RankPosition>(2);
      held[0].set_committed(4);
      held[0].mutable_totals()->set_examples(40);
      held[0].mutable_totals()->set_steps(4);
      held[0].mutable_totals_before()->set_examples(30);
      held[0].mutable_totals_before()->set_steps(3);
    }
    c_->PollAll();
    const auto begin = [&] { return c_->Phase(job_, 0, SeenAgain(50, 0))->phase(); };
    if (begun) {
      EXPECT_EQ(begin().commit_again(), 4u);
    }
    ASSERT_TRUE(EndJob(1, 3).ok());
    if (!begun) {
      EXPECT_EQ(begin().commit_again(), 0u);
    }
    c_->Phase(job_, 0, TrainedSteps(2, begun ? 4 : 3)).status().IgnoreError();
    const Phase eval = c_->Phase(job_, 1, TrainedSteps(2, 3))->phase();
    EXPECT_EQ(Finish(eval).examples(), 60u);
    c_->held_.clear();
  }
}

TEST_F(EarlyEndTest, TheEndHasACheckpointFromWhichTheJobCanContinue) {
  Begin(WithCheckpoints(Config(-1)));
  ASSERT_TRUE(EndJob(1, 3).ok());
  c_->core_.TakeActions();
  c_->Phase(job_, 0, TrainedSteps(2, 3)).status().IgnoreError();
  EXPECT_FALSE(c_->Phase(job_, 1, TrainedSteps(2, 3))->ready());
  c_->PollAll();
  const std::optional<Manifest> manifest = WriteCheckpoint(1);
  ASSERT_TRUE(manifest.has_value());
  const CheckpointState& state = manifest->checkpoint();
  EXPECT_EQ(manifest->global_step(), 3u);
  EXPECT_EQ(state.steps_done(), 3u);
  EXPECT_EQ(state.workers(0).train().examples(), 30u);
  EXPECT_EQ(c_->Phase(job_, 0)->phase().kind(), Phase::EVAL);
  c_->core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_->now_);

  // The next attempt begins there, trains nothing and ends there again.
  Kill(ROLE_PSERVER, 0);
  c_->hosted_cuts_.clear();
  c_->pservers_[0] = c_->Join(ROLE_PSERVER, 0, /*pid=*/2);
  c_->PollAll();
  ASSERT_EQ(c_->State(job_), JOB_RUNNING) << c_->Status(job_).message();
  EXPECT_EQ(c_->Status(job_).recovery().rollbacks(), 1u);
  EXPECT_EQ(AssignmentOf(0).early_end().last_step(), 3u);
  for (const uint32_t rank : {0, 1})
    c_->Phase(job_, rank, Indexed(50, rank)).status().IgnoreError();
  const Phase again = c_->Phase(job_, 0)->phase();
  ASSERT_EQ(again.kind(), Phase::TRAIN);
  EXPECT_EQ(again.skip_steps(), 3u);
  const JobResult result = Finish(EndPhase(TrainedSteps(2, 3)));
  EXPECT_EQ(result.examples(), 60u);
  EXPECT_EQ(result.stopped_by(), "program");
}

TEST_F(EarlyEndTest, AsyncSaysWhichDataIsLeft) {
  Begin(WithCheckpoints(Config(0)));
  const auto task = c_->Task(job_, 0, 0, 0, 1);
  c_->Task(job_, 1, 0, 0, 1).status().IgnoreError();
  ASSERT_TRUE(EndJob(0, 0).ok());
  c_->core_.TakeActions();
  EXPECT_EQ(c_->Task(job_, 0, 0, task->task().id(), 2, 10)->kind(), NextTaskReply::EPOCH_DONE);
  c_->Phase(job_, 0, TrainedSteps(2, 1)).status().IgnoreError();
  EXPECT_FALSE(c_->Phase(job_, 1, TrainedSteps(2, 0))->ready());
  c_->PollAll();
  for (const uint32_t rank : {0, 1}) {
    ASSERT_EQ(AssignmentOf(rank).checkpoint().number(), 1u);
    WorkerCut& cut = c_->worker_cuts_[WorkerOf(rank)];
    cut.set_job_id(job_);
    cut.set_rank(rank);
    cut.set_incarnation(c_->Incarnation(job_, rank));
    cut.set_checkpoint(1);
    cut.set_step(rank == 0 ? 1 : 0);
  }
  c_->PollAll();
  for (const uint64_t id : c_->pservers_) {
    HostedCut& cut = c_->hosted_cuts_[id];
    for (const uint32_t rank : {0, 1}) {
      RankPosition* const least = cut.add_least();
      if (rank != 0) continue;
      least->set_sequence(1);
      least->set_incarnation(c_->Incarnation(job_, 0));
      least->set_task_id(task->task().id());
      least->set_task_end(10);
      least->mutable_totals()->set_examples(10);
    }
  }
  const std::optional<Manifest> manifest = WriteCheckpoint(1);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_EQ(manifest->checkpoint().open_tasks_size(), 9);
  EXPECT_EQ(manifest->checkpoint().workers(0).train().examples(), 10u);
  EXPECT_EQ(c_->Phase(job_, 0)->phase().kind(), Phase::EVAL);
}

}  // namespace
}  // namespace sluice
