// Losses of members that a job survives, in a whole core with fake members.
#include "scheduler/recovery/next_attempt.h"

#include <gmock/gmock.h>

#include <functional>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NextAttemptTest : public testing::Test {
 protected:
  explicit NextAttemptTest(uint32_t workers = 2) : c_(2, workers) { c_.JoinAll(2, workers); }

  static JobConfig Config(uint32_t epochs = 1, int k_steps = -1) {
    JobConfig config = FakeCluster::Config(k_steps, 2, epochs);
    config.clear_recovery();
    return config;
  }

  // Leads the job to a phase; phase 0: STARTING, 1: INDEX, 2: TRAIN, 3: EVAL, 4: SAVE, 5:
  // finishing.
  void LeadTo(int phase, const JobConfig& config = Config()) {
    job_ = phase == 0 ? *c_.Submit(config) : c_.Run(config);
    EndPhases(phase);
  }
  void EndPhases(int phase) {
    for (int number = 1; number < phase; ++number) {
      for (const uint32_t rank : {0, 1}) {
        PhaseReport report = number == 1 ? Indexed(50, rank) : Trained(number, 50);
        c_.Phase(job_, rank, report).status().IgnoreError();
      }
    }
  }
  std::vector<uint64_t>& Ids(Role role) {
    return role == ROLE_PSERVER ? c_.pservers_ : c_.workers_;
  }
  void Kill(Role role, uint32_t rank, uint32_t pid = 1) {
    MemberEndedRequest ended;
    ended.set_role(role);
    ended.set_rank(rank);
    ended.set_pid(pid);
    ended.set_process_space("space");
    ended.set_reason("its process was killed by signal 9 (Killed)");
    c_.core_.members().MemberEnded(ended, c_.now_);
    c_.desired_.erase(Ids(role)[rank]);
  }
  void Replace(Role role, uint32_t rank, uint32_t pid = 2) {
    Ids(role)[rank] = c_.Join(role, rank, pid);
  }
  uint64_t Instance() { return c_.desired_[c_.pservers_[0]].host(0).instance(); }
  uint64_t Generation() { return c_.desired_[c_.pservers_[0]].host(0).route().generation(); }
  Recovery Counts() { return c_.Status(job_).recovery(); }
  void Finish() {
    c_.PollAll();
    ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
    EXPECT_EQ(c_.Phase(job_, 0)->phase().kind(), Phase::INDEX);
    EndPhases(5);
    c_.PollAll();
    result_ = c_.WriteOutputs().back().result;
    EXPECT_EQ(c_.State(job_), JOB_DONE) << c_.Status(job_).message();
    for (const uint32_t rank : {0, 1}) c_.Phase(job_, rank).status().IgnoreError();
    c_.PollAll();
    EXPECT_EQ(c_.desired_[c_.pservers_[0]].host_size(), 0);
  }

  FakeCluster c_;
  std::string job_;
  JobResult result_;
};

class EveryPhaseTest : public NextAttemptTest, public testing::WithParamInterface<int> {};

TEST_P(EveryPhaseTest, TheLossOfAPserverLeadsToANewAttempt) {
  LeadTo(GetParam());
  for (const uint64_t id : c_.pservers_) c_.Poll(id).status().IgnoreError();
  const uint64_t instance = Instance(), generation = Generation();
  const uint64_t incarnation = c_.Incarnation(job_, 0);
  Kill(ROLE_PSERVER, 1);
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  c_.PollAll();
  EXPECT_EQ(c_.desired_[c_.pservers_[0]].host_size(), 0);
  EXPECT_FALSE(c_.desired_[c_.workers_[0]].has_assignment());
  EXPECT_THAT(c_.Status(job_).message(),
              AllOf(HasSubstr("killed by signal 9"), HasSubstr("waits for pserver 1")));
  Replace(ROLE_PSERVER, 1);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_NE(Instance(), instance);
  EXPECT_GT(Generation(), generation);
  EXPECT_GT(c_.Incarnation(job_, 0), incarnation);
  EXPECT_GT(c_.Incarnation(job_, 1), incarnation);
  EXPECT_EQ(Counts().worker_losses(), 0u);
  EXPECT_EQ(Counts().pserver_losses(), 1u);
  EXPECT_EQ(Counts().rollbacks(), 1u);
  Finish();
  EXPECT_EQ(result_.recovery().rollbacks(), 1u);
  EXPECT_EQ(result_.examples(), 100u);
  EXPECT_EQ(result_.epochs_log_size(), 1);
}

INSTANTIATE_TEST_SUITE_P(Phases, EveryPhaseTest, testing::Range(0, 5));

class LateLossTest : public NextAttemptTest, public testing::WithParamInterface<Role> {};

TEST_P(LateLossTest, DoesNotConcernTheJob) {
  LeadTo(5);
  Kill(GetParam(), 1);
  EXPECT_NE(c_.State(job_), JOB_RECOVERING);
  c_.Advance(absl::Seconds(3));
  const JobResult result = c_.WriteOutputs().back().result;
  EXPECT_EQ(c_.State(job_), JOB_DONE);
  EXPECT_EQ(result.recovery().rollbacks(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Roles, LateLossTest, testing::Values(ROLE_PSERVER, ROLE_WORKER));

TEST_F(NextAttemptTest, LossesAtOnceAreOneRollback) {
  LeadTo(2);
  Kill(ROLE_PSERVER, 0);
  Kill(ROLE_WORKER, 1);
  Kill(ROLE_PSERVER, 1);
  EXPECT_THAT(c_.Status(job_).waiting_for(), AllOf(HasSubstr("pserver 0"), HasSubstr("pserver 1"),
                                                   HasSubstr("1 worker to register")));
  for (const Role role : {ROLE_PSERVER, ROLE_WORKER}) Replace(role, 1);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  Replace(ROLE_PSERVER, 0);
  c_.PollAll();
  EXPECT_EQ(Counts().pserver_losses(), 2u);
  EXPECT_EQ(Counts().worker_losses(), 1u);
  EXPECT_EQ(Counts().rollbacks(), 1u);
  Finish();
}

TEST_F(NextAttemptTest, AJobThatFailsWhileItWaitsCountsWhatItHadTrained) {
  JobConfig config = Config();
  config.mutable_recovery()->set_wait_s(1);
  LeadTo(2, config);
  for (const uint32_t rank : {0, 1}) {
    PollRequest poll;
    poll.set_member_id(c_.workers_[rank]);
    WorkerProgress* const progress = poll.mutable_progress();
    progress->set_job_id(job_);
    progress->set_rank(rank);
    progress->set_incarnation(c_.Incarnation(job_, rank));
    progress->set_epoch(1);
    progress->set_step(3);
    progress->set_examples(30);
    ASSERT_TRUE(c_.core_.Poll(poll, c_.now_).ok());
  }
  Kill(ROLE_PSERVER, 1);
  for (int i = 0; i < 3; ++i) {
    c_.PollAll();
    c_.Advance(absl::Seconds(1));
  }
  const JobResult result = c_.WriteOutputs().back().result;
  EXPECT_EQ(result.status(), "failed");
  EXPECT_EQ(result.examples(), 60u);
  EXPECT_EQ(result.global_step(), 3u);
}

class SpareWorkerTest : public NextAttemptTest {
 protected:
  SpareWorkerTest() : NextAttemptTest(/*workers=*/3) {}
};

TEST_F(SpareWorkerTest, AReservedWorkerServesARankOrIsFreeAgain) {
  LeadTo(2);
  Kill(ROLE_PSERVER, 1);
  Kill(ROLE_WORKER, 0);  // worker 2 is reserved
  Replace(ROLE_WORKER, 0);
  Replace(ROLE_PSERVER, 1);
  c_.PollAll();
  const JobStatus status = c_.Status(job_);
  ASSERT_EQ(status.state(), JOB_RUNNING) << status.message();
  EXPECT_THAT(status.allocated(), testing::ElementsAre(1, 2));
  // The one that came back is free for other jobs.
  const ClusterStatus cluster = c_.core_.operators().GetStatus(c_.now_);
  for (const MemberStatus& member : cluster.members()) {
    if (member.role() == ROLE_WORKER) {
      EXPECT_EQ(member.job_id(), member.rank() == 0 ? "" : job_) << "worker " << member.rank();
    }
  }
}

TEST_F(NextAttemptTest, AReplacementThatIsLostWhileItOpensTheTablesIsReplaced) {
  LeadTo(2);
  Kill(ROLE_PSERVER, 1);
  Replace(ROLE_PSERVER, 1);
  // The workers stop, and the next attempt begins; nobody has opened its tables yet.
  for (const uint64_t id : c_.workers_) c_.Poll(id).status().IgnoreError();
  for (const uint64_t id : c_.workers_) c_.Poll(id).status().IgnoreError();
  ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  EXPECT_THAT(c_.Status(job_).waiting_for(), HasSubstr("pserver 1 (ps1, pid 2"));
  Kill(ROLE_PSERVER, 1, /*pid=*/2);
  EXPECT_THAT(c_.Status(job_).waiting_for(), HasSubstr("pserver 1 to register"));
  Replace(ROLE_PSERVER, 1, /*pid=*/3);
  c_.PollAll();
  EXPECT_EQ(Counts().pserver_losses(), 2u);
  Finish();
}

TEST_F(NextAttemptTest, ReplacementsThatDoNotComeInTimeEndTheJob) {
  JobConfig config = Config();
  config.mutable_recovery()->set_wait_s(5);
  LeadTo(2, config);
  Kill(ROLE_PSERVER, 1);
  const auto pass = [this](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      c_.PollAll();
      c_.Advance(absl::Seconds(1));
    }
  };
  pass(4);
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  Kill(ROLE_WORKER, 1);  // the wait begins again
  pass(4);
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  pass(2);
  const JobResult result = c_.WriteOutputs().back().result;
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_THAT(result.message(), AllOf(HasSubstr("pserver 1 to register"),
                                      HasSubstr("1 worker to register"), HasSubstr("wait_s")));
  EXPECT_EQ(result.recovery().rollbacks(), 0u);
  EXPECT_EQ(result.recovery().worker_losses(), 1u);
}

TEST_F(NextAttemptTest, MoreLossesThanAllowedEndTheJob) {
  for (const uint32_t most : {0u, 2u}) {
    JobConfig config = Config();
    config.mutable_recovery()->set_max_losses(most);
    LeadTo(2, config);
    for (uint32_t loss = 0; loss < most; ++loss) {
      Kill(ROLE_WORKER, 1, loss + 1);
      Replace(ROLE_WORKER, 1, loss + 2);
      c_.PollAll();
      ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
    }
    Kill(ROLE_WORKER, 1, most + 1);
    c_.WriteOutputs();
    EXPECT_EQ(c_.State(job_), JOB_FAILED);
    EXPECT_THAT(c_.Status(job_).message(),
                AllOf(HasSubstr("worker 1 (pid"), HasSubstr("killed by signal 9")));
    EXPECT_EQ(c_.Status(job_).result().recovery().worker_losses(), most + 1);
    Replace(ROLE_WORKER, 1, /*pid=*/1);
    c_.PollAll();
  }
}

TEST_F(NextAttemptTest, CancelAndShutdownEndARecovery) {
  LeadTo(2);
  Kill(ROLE_PSERVER, 1);
  c_.PollAll();
  ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_CANCELLED);
  Replace(ROLE_PSERVER, 1);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_CANCELLED);
  // Its workers are free again. The next one is cancelled while its tables are opened.
  LeadTo(2);
  Kill(ROLE_PSERVER, 1, /*pid=*/2);
  Replace(ROLE_PSERVER, 1, /*pid=*/3);
  for (int i = 0; i < 2; ++i) {
    for (const uint64_t id : c_.workers_) c_.Poll(id).status().IgnoreError();
  }
  ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_CANCELLED);
  c_.PollAll();
  EXPECT_EQ(c_.desired_[c_.pservers_[0]].host_size(), 0);
  LeadTo(2);
  Kill(ROLE_PSERVER, 0);
  c_.core_.operators().Shutdown(c_.now_);
  const JobResult result = c_.WriteOutputs().back().result;
  EXPECT_EQ(result.status(), "cancelled");
}

TEST_F(NextAttemptTest, APausedWorkerIsFencedWhenItComesBack) {
  LeadTo(2);
  const uint64_t paused = c_.workers_[1], incarnation = c_.Incarnation(job_, 1);
  for (int second = 0; second < 11; ++second) {
    for (const uint64_t id : {c_.pservers_[0], c_.pservers_[1], c_.workers_[0]})
      c_.Poll(id).status().IgnoreError();
    c_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_TRUE(absl::IsNotFound(c_.Poll(paused).status()));  // so it drops its job and registers
  const auto next_phase = [&] {
    NextPhaseRequest request;
    request.set_job_id(job_);
    request.set_rank(1);
    request.set_incarnation(incarnation);
    *request.mutable_report() = Trained(2, 50);
    return c_.core_.NextPhase(request, c_.now_).status();
  };
  EXPECT_TRUE(absl::IsAborted(next_phase()));
  c_.desired_.erase(paused);
  Replace(ROLE_WORKER, 1, /*pid=*/1);
  c_.PollAll();
  EXPECT_TRUE(absl::IsAborted(next_phase()));
}

TEST_F(NextAttemptTest, ErrorsOfRanksThatFollowALossDoNotEndTheJob) {
  LeadTo(2);
  Kill(ROLE_PSERVER, 1);
  FailJobRequest request;
  request.set_job_id(job_);
  request.set_member_id(c_.workers_[0]);
  request.set_message("pull 7 from pserver 1 did not come");
  request.set_incarnation(c_.Incarnation(job_, 0));
  EXPECT_TRUE(absl::IsFailedPrecondition(c_.core_.FailJob(request, c_.now_)));
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  Replace(ROLE_PSERVER, 1);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_TRUE(absl::IsFailedPrecondition(c_.core_.FailJob(request, c_.now_))) << "late";
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  // In the next attempt its word counts again.
  request.set_incarnation(c_.Incarnation(job_, 0));
  EXPECT_TRUE(c_.core_.FailJob(request, c_.now_).ok());
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
}

TEST_F(NextAttemptTest, TheFailureOfAWorkersProcessEndsTheJobAlsoWhileItRecovers) {
  LeadTo(2);
  Kill(ROLE_PSERVER, 1);
  ASSERT_EQ(c_.State(job_), JOB_RECOVERING);
  FailJobRequest request;
  request.set_job_id(job_);
  request.set_message("Traceback: ZeroDivisionError");
  request.set_member_id(c_.pservers_[0]);
  EXPECT_TRUE(absl::IsFailedPrecondition(c_.core_.FailJob(request, c_.now_))) << "no worker";
  request.set_member_id(c_.workers_[0]);
  EXPECT_TRUE(c_.core_.FailJob(request, c_.now_).ok());
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_THAT(c_.Status(job_).message(), testing::HasSubstr("ZeroDivisionError"));
}

TEST_F(NextAttemptTest, AnErrorOfTheNextAttemptsTablesEndsTheJob) {
  LeadTo(2);
  const uint64_t lost_instance = Instance();
  Kill(ROLE_PSERVER, 1);
  Replace(ROLE_PSERVER, 1);
  for (int i = 0; i < 2; ++i) {
    for (const uint64_t id : c_.workers_) c_.Poll(id).status().IgnoreError();
  }
  PollRequest report;
  report.set_member_id(c_.pservers_[0]);
  HostedJob* hosted = report.add_hosted();
  hosted->set_job_id(job_);
  hosted->set_instance(lost_instance);
  hosted->set_generation(1);
  hosted->set_error("NaN");
  ASSERT_TRUE(c_.core_.Poll(report, c_.now_).ok());
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING) << "that attempt is over";
  const PollReply told = *c_.core_.members().Desired(c_.pservers_[0]);
  hosted->set_instance(told.host(0).instance());
  hosted->set_generation(told.host(0).route().generation());
  hosted->set_error("cannot resume from checkpoint /c/step-3: file embedding.0 is damaged");
  ASSERT_TRUE(c_.core_.Poll(report, c_.now_).ok());
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_THAT(c_.Status(job_).message(), HasSubstr("embedding.0"));
}

class RollbackAndQueueTest : public NextAttemptTest {
 protected:
  RollbackAndQueueTest() : NextAttemptTest(/*workers=*/3) {}
};

TEST_F(RollbackAndQueueTest, ARecoveringJobComesBeforeQueuedOnes) {
  LeadTo(2);
  const std::string queued = *c_.Submit(FakeCluster::Config(0, 2));
  c_.PollAll();
  EXPECT_EQ(c_.State(queued), JOB_QUEUED);
  Kill(ROLE_WORKER, 0);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING) << "the third worker was free";
  Replace(ROLE_WORKER, 0);
  Kill(ROLE_WORKER, 1);
  Kill(ROLE_PSERVER, 0);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  EXPECT_EQ(c_.State(queued), JOB_QUEUED);
  Replace(ROLE_PSERVER, 0);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(c_.State(queued), JOB_QUEUED);
  // A job that ends while it waits gives its workers back.
  Kill(ROLE_PSERVER, 0, /*pid=*/2);
  c_.PollAll();
  ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
  Replace(ROLE_PSERVER, 0, /*pid=*/3);
  c_.PollAll();
  EXPECT_EQ(c_.State(queued), JOB_RUNNING) << c_.Status(queued).message();
}

class RollbackToCheckpointTest : public NextAttemptTest {
 protected:
  // Two epochs of five global steps; a checkpoint every three.
  void Train() {
    JobConfig config = Config(/*epochs=*/2);
    config.mutable_checkpoint()->set_every_steps(3);
    config.mutable_checkpoint()->set_keep(2);
    config.set_output_dir("/out");
    LeadTo(2, config);
    c_.PollAll();
    c_.core_.TakeActions();
  }
  // All parts of checkpoint `number` arrive.
  void MakeParts(uint64_t number, uint64_t step) {
    for (const uint32_t i : {0, 1}) {
      HostedCut hosted;
      hosted.set_checkpoint(number);
      hosted.set_state(HostedCut::WRITTEN);
      hosted.set_step(step);
      hosted.add_files()->set_name(absl::StrCat("p-", i, ".shard"));
      c_.hosted_cuts_[c_.pservers_[i]] = hosted;
      WorkerCut cut;
      cut.set_job_id(job_);
      cut.set_rank(i);
      cut.set_incarnation(c_.Incarnation(job_, i));
      cut.set_checkpoint(number);
      cut.set_step(step);
      cut.mutable_state()->mutable_train()->set_examples(10 * step);
      c_.worker_cuts_[c_.workers_[i]] = cut;
    }
    c_.steps_done_ = step;
    c_.PollAll();
  }
  void Complete(uint64_t number, uint64_t step) {
    MakeParts(number, step);
    c_.core_.CheckpointWritten(job_, number, absl::OkStatus(), "", c_.now_);
    c_.PollAll();
  }
  std::vector<OutputAction> Discarded() {
    std::vector<OutputAction> found;
    for (OutputAction& action : c_.core_.TakeActions()) {
      if (action.kind == OutputAction::kDiscard) found.push_back(std::move(action));
    }
    return found;
  }
};

TEST_F(RollbackToCheckpointTest, TheNextAttemptContinuesFromTheNewestCheckpoint) {
  Train();
  Complete(1, 3);
  c_.steps_done_ = 5;
  c_.PollAll();
  Kill(ROLE_PSERVER, 1);
  Replace(ROLE_PSERVER, 1);
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  const JobSpec& spec = c_.desired_[c_.pservers_[0]].host(0);
  EXPECT_EQ(spec.restore().directory(), "/out/checkpoints/step-3");
  EXPECT_EQ(spec.restore().step(), 3u);
  EXPECT_EQ(Counts().steps_rolled_back(), 2u);
  EXPECT_EQ(Counts().updates_lost(), 0u);
  EXPECT_THAT(Counts().last(), HasSubstr("/out/checkpoints/step-3"));
  EndPhases(2);
  const Phase phase = c_.Phase(job_, 0)->phase();
  EXPECT_EQ(phase.kind(), Phase::TRAIN);
  EXPECT_EQ(phase.skip_steps(), 3u);
  EXPECT_EQ(phase.resume().train().examples(), 30u);
  // The next checkpoint has the next number. Its step is in the next epoch.
  for (const uint64_t number : {2, 3}) {
    for (const uint32_t rank : {0, 1})
      c_.Phase(job_, rank, Trained(number, 50)).status().IgnoreError();
  }
  c_.steps_done_ = 5;
  c_.PollAll();
  const WorkerCheckpoint asked = c_.desired_[c_.workers_[0]].assignment().checkpoint();
  EXPECT_EQ(asked.number(), 2u);
  EXPECT_EQ(asked.every_steps(), 3u);
  Complete(2, 6);
  EXPECT_EQ(c_.Status(job_).checkpoint().made(), 2u);
  // It is not "resumed": nobody asked for that.
  ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
  EXPECT_EQ(c_.WriteOutputs().back().result.resumed_from(), "");
}

TEST_F(RollbackToCheckpointTest, AnOpenCheckpointIsGivenUpAndItsFilesRemovedTwice) {
  Train();
  const uint64_t instance = Instance();
  HostedCut writing;
  writing.set_checkpoint(1);
  writing.set_state(HostedCut::WRITING);
  writing.set_step(3);
  c_.hosted_cuts_[c_.pservers_[0]] = writing;
  c_.PollAll();
  c_.hosted_cuts_.clear();
  Kill(ROLE_PSERVER, 1);
  auto discarded = Discarded();
  ASSERT_EQ(discarded.size(), 1u);
  const std::string save_id = discarded[0].save_id;
  EXPECT_EQ(discarded[0].manifest.global_step(), 3u);
  Replace(ROLE_PSERVER, 1);
  c_.PollAll();
  EXPECT_NE(Instance(), instance);
  EXPECT_FALSE(c_.desired_[c_.pservers_[0]].host(0).has_restore());
  for (int i = 0; i < 12; ++i) {
    c_.PollAll();
    c_.Advance(absl::Seconds(1));
  }
  discarded = Discarded();
  ASSERT_EQ(discarded.size(), 1u);
  EXPECT_EQ(discarded[0].save_id, save_id) << "the files are those of the earlier instance";
  EXPECT_EQ(c_.Status(job_).checkpoint().failed(), 0u);
  EXPECT_EQ(c_.desired_[c_.workers_[0]].assignment().checkpoint().number(), 2u);
}

TEST_F(RollbackToCheckpointTest, AManifestThatIsBeingWrittenIsAwaited) {
  for (const bool written : {true, false}) {
    Train();
    MakeParts(1, 3);
    Kill(ROLE_PSERVER, 1);
    Replace(ROLE_PSERVER, 1);
    c_.PollAll();
    EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
    EXPECT_THAT(c_.Status(job_).message(), HasSubstr("checkpoint"));
    c_.core_.CheckpointWritten(
        job_, 1, written ? absl::OkStatus() : absl::ResourceExhaustedError("disk full"), "",
        c_.now_);
    c_.hosted_cuts_.clear();
    c_.PollAll();
    ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
    EXPECT_EQ(c_.desired_[c_.pservers_[0]].host(0).has_restore(), written);
    ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
    c_.WriteOutputs();
    Kill(ROLE_PSERVER, 1, /*pid=*/2);
    Replace(ROLE_PSERVER, 1, /*pid=*/1);
    c_.PollAll();
    c_.incarnations_.clear();
  }
}

TEST_F(RollbackToCheckpointTest, TheLastCheckpointIsGivenUpWhenAPserverIsLostAfterTheLastStep) {
  JobConfig config = Config(/*epochs=*/1);
  config.mutable_checkpoint()->set_every_steps(5);
  config.mutable_data()->clear_eval_files();
  config.set_output_dir("/out");
  LeadTo(2, config);
  c_.PollAll();
  HostedCut cut;
  cut.set_checkpoint(1);
  cut.set_state(HostedCut::WRITING);
  cut.set_step(5);
  for (const uint64_t id : c_.pservers_) c_.hosted_cuts_[id] = cut;
  c_.PollAll();
  EndPhases(4);  // TRAIN, SAVE
  c_.PollAll();
  c_.Advance(absl::Seconds(3));
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << "the job waits for the checkpoint of its last step";
  Kill(ROLE_PSERVER, 1);
  c_.Advance(absl::Seconds(3));
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_DONE);
  EXPECT_EQ(c_.Status(job_).result().checkpoint().failed(), 1u);
}

// A sync job of three workers that goes on without those that it loses before it trains, so that it
// has no place to continue from but its beginning (rank_removal_test.cc has the others).
class ShrinkTest : public NextAttemptTest {
 protected:
  ShrinkTest() : NextAttemptTest(/*workers=*/3) {}

  void Start() {
    JobConfig config = FakeCluster::Config(-1, 3);
    config.clear_recovery();
    config.mutable_recovery()->set_wait_s(30);
    config.mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(SyncConfigs::SHRINK);
    job_ = c_.Run(config);
  }
  void ExpectRunsWith(uint32_t workers) {
    c_.PollAll();
    ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
    EXPECT_EQ(c_.Status(job_).worker_num(), workers);
    EXPECT_EQ(c_.Status(job_).allocated_size(), static_cast<int>(workers));
    EXPECT_EQ(c_.desired_[c_.pservers_[0]].host(0).worker_num(), workers);
    EXPECT_EQ(c_.desired_[c_.pservers_[0]].host(0).global_batch(), 30u);
  }
};

TEST_F(ShrinkTest, LostWorkersAreNotReplaced) {
  Start();
  Kill(ROLE_WORKER, 1);
  ExpectRunsWith(2);
  EXPECT_THAT(Counts().last(), AllOf(HasSubstr("worker 1"), HasSubstr("with 2 workers")));
  EXPECT_THAT(c_.Status(job_).warnings(0), HasSubstr("index"));
  EXPECT_EQ(Counts().shrinks(), 1u);
  EXPECT_EQ(Counts().rollbacks(), 1u);
  Replace(ROLE_WORKER, 1);
  ExpectRunsWith(2);
  // The newcomer is free for other jobs.
  const std::string other = c_.Run(FakeCluster::Config(-1, 1));
  EXPECT_EQ(c_.Status(other).allocated(0), 1u);
}

TEST_F(ShrinkTest, LossesAtOnceShrinkTheJobOnceEach) {
  Start();
  Kill(ROLE_WORKER, 0);
  Kill(ROLE_WORKER, 2);
  ExpectRunsWith(1);
  EXPECT_EQ(Counts().shrinks(), 2u);
  EXPECT_EQ(Counts().rollbacks(), 1u);
}

TEST_F(ShrinkTest, AWorkerThatLeavesInOrderIsReplaced) {
  Start();
  LeaveRequest leave;
  leave.set_member_id(c_.workers_[1]);
  c_.core_.Leave(leave, c_.now_);
  c_.PollAll();
  EXPECT_EQ(Counts().shrinks(), 0u);
  Replace(ROLE_WORKER, 1);
  ExpectRunsWith(3);
  EXPECT_EQ(Counts().rollbacks(), 0u);
  // One that does not come back is done without in the end.
  leave.set_member_id(c_.workers_[1]);
  c_.core_.Leave(leave, c_.now_);
  c_.workers_.erase(c_.workers_.begin() + 1);
  for (int second = 0; second < 35; ++second) {
    c_.PollAll();
    c_.Advance(absl::Seconds(1));
  }
  ExpectRunsWith(2);
  EXPECT_EQ(Counts().shrinks(), 1u);
}

TEST_F(ShrinkTest, AFreeWorkerReplacesALostOne) {
  Start();
  Kill(ROLE_WORKER, 1);
  ExpectRunsWith(2);
  Replace(ROLE_WORKER, 1);
  c_.PollAll();
  Kill(ROLE_WORKER, 2);
  ExpectRunsWith(2);
  EXPECT_EQ(Counts().shrinks(), 1u);
  EXPECT_EQ(Counts().rollbacks(), 1u);
}

TEST_F(ShrinkTest, TheLastWorkerIsReplaced) {
  Start();
  for (const uint32_t rank : {0, 1, 2}) Kill(ROLE_WORKER, rank);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  EXPECT_EQ(Counts().shrinks(), 2u);
  Replace(ROLE_WORKER, 0);
  ExpectRunsWith(1);
  Kill(ROLE_WORKER, 0, /*pid=*/2);
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING) << "its rank waits";
  Replace(ROLE_WORKER, 0, /*pid=*/3);
  ExpectRunsWith(1);
  EXPECT_EQ(Counts().shrinks(), 2u);
  EXPECT_EQ(Counts().rollbacks(), 1u);
}

TEST_F(ShrinkTest, WorkersThatNobodyReplacesInTimeAreDoneWithout) {
  Start();
  Kill(ROLE_PSERVER, 1);
  // It stops cleanly, so that the job keeps it, and never comes back.
  c_.workers_.pop_back();
  for (int second = 0; second < 12; ++second) {
    c_.PollAll();
    c_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(Counts().shrinks(), 1u);
  Replace(ROLE_PSERVER, 1);
  ExpectRunsWith(2);
  EXPECT_EQ(Counts().rollbacks(), 1u);
}

}  // namespace
}  // namespace sluice
