// Replaces lost workers in a whole core with fake members: in every phase, several at once, and
// with nobody to take over.
#include "scheduler/recovery/rank_replacement.h"

#include <gmock/gmock.h>

#include <map>
#include <memory>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A cluster with more workers than the job's two.
class RankReplacementTest : public testing::Test {
 protected:
  explicit RankReplacementTest(uint32_t workers = 3) { BeginAnew(workers); }
  void BeginAnew(uint32_t workers) {
    cluster_ = std::make_unique<FakeCluster>(2, workers);
    cluster_->JoinAll(2, workers);
    life_.clear();
    report_.clear();
  }

  static JobConfig Config(int k_steps, uint32_t epochs = 1) {
    JobConfig config = FakeCluster::Config(k_steps, 2, epochs);
    config.clear_recovery();
    return config;
  }
  void Begin(const JobConfig& config) { job_ = cluster_->Run(config); }

  void Kill(uint32_t worker, uint32_t pid = 1) {
    MemberEndedRequest ended;
    ended.set_role(ROLE_WORKER);
    ended.set_rank(worker);
    ended.set_pid(pid);
    ended.set_process_space("space");
    ended.set_reason("its process was killed by signal 9");
    cluster_->core_.members().MemberEnded(ended, cluster_->now_);
    cluster_->desired_.erase(cluster_->workers_[worker]);
  }
  const WorkerAssignment& AssignmentOf(uint32_t worker) {
    return cluster_->desired_[cluster_->workers_[worker]].assignment();
  }
  const JobSpec& Hosted(uint32_t pserver) {
    return cluster_->desired_[cluster_->pservers_[pserver]].host(0);
  }

  // What a worker tells when it has looked at its files.
  static PhaseReport Seen(uint32_t rank, bool sync) {
    PhaseReport report = Indexed(50, rank);
    if (!sync && rank == 0) {
      DataFile* const file = report.mutable_index()->add_files();
      file->set_path("train.csv");
      file->set_bytes(1000);  // ten tasks
    }
    return report;
  }
  // The same from a worker that takes over a rank.
  static PhaseReport SeenAgain(uint32_t rank, bool sync) {
    PhaseReport report = Seen(rank, sync);
    report.set_number(0);
    return report;
  }
  // Lets both ranks do what the scheduler says, up to phase `number`, which they only begin; 0: to
  // the end of the job. Ranks that nobody serves do nothing.
  void Drive(bool sync, uint64_t number) {
    for (int i = 0; i < 100; ++i) {
      cluster_->PollAll();
      bool over = true;
      for (const uint32_t rank : {0, 1}) {
        const uint64_t life = cluster_->Incarnation(job_, rank);
        if (life_[rank] != life) report_[rank] = PhaseReport();
        if (life_[rank] != life && Rejoins(rank)) report_[rank] = SeenAgain(rank, sync);
        life_[rank] = life;
        const auto reply = cluster_->Phase(job_, rank, report_[rank]);
        if (absl::IsAborted(reply.status())) {  // its worker is lost
          over = false;
          continue;
        }
        ASSERT_TRUE(reply.ok()) << reply.status();
        const bool finish = reply->phase().kind() == Phase::FINISH;
        over &= finish || (number != 0 && reply->ready() && reply->phase().number() == number);
        if (!reply->ready() || finish || reply->phase().number() == number) continue;
        report_[rank] = Do(rank, sync, reply->phase());
        ASSERT_FALSE(testing::Test::HasFatalFailure());
      }
      if (over) return;
    }
    FAIL() << "the job does not come to phase " << number << ": "
           << cluster_->Status(job_).DebugString();
  }
  bool Rejoins(uint32_t rank) {
    for (const auto& [id, state] : cluster_->desired_) {
      if (state.assignment().job().job_id() == job_ && state.assignment().rank() == rank)
        return state.assignment().rejoins();
    }
    return false;
  }
  PhaseReport Do(uint32_t rank, bool sync, const Phase& phase) {
    if (phase.kind() == Phase::INDEX) return Seen(rank, sync);
    if (phase.kind() != Phase::TRAIN) return Ended(phase.number());
    uint64_t done = 0, trained = 0;
    while (!sync) {
      const auto task = cluster_->Task(job_, rank, phase.epoch(), done);
      EXPECT_TRUE(task.ok()) << task.status();
      if (!task.ok() || task->kind() != NextTaskReply::TASK) break;
      done = task->task().id();
      trained += 10 - task->task().first_offset();  // each task has ten examples
    }
    const uint64_t before = phase.resume().train().examples();
    return Trained(phase.number(), sync ? 50 : before + trained);
  }
  JobResult Result() {
    cluster_->PollAll();
    for (OutputAction& action : cluster_->WriteOutputs()) {
      if (action.kind == OutputAction::kEnded) return action.result;
    }
    ADD_FAILURE() << "the job has not ended: " << cluster_->Status(job_).DebugString();
    return JobResult();
  }

  std::unique_ptr<FakeCluster> cluster_;
  std::string job_;
  std::map<uint32_t, uint64_t> life_;
  std::map<uint32_t, PhaseReport> report_;
};

class InEachMode : public RankReplacementTest, public testing::WithParamInterface<int> {
 protected:
  bool sync() const { return GetParam() < 0; }
};

// INDEX, TRAIN, EVAL, TRAIN, EVAL, SAVE.
TEST_P(InEachMode, AWorkerLostInAnyPhaseIsReplacedAndTheJobIsDone) {
  for (const uint32_t lost : {0, 1}) {
    for (uint64_t phase = 1; phase <= 6; ++phase) {
      SCOPED_TRACE(absl::StrCat("phase ", phase, ", rank ", lost));
      BeginAnew(3);
      Begin(Config(GetParam(), /*epochs=*/2));
      ASSERT_NO_FATAL_FAILURE(Drive(sync(), phase));
      const uint64_t before = cluster_->Incarnation(job_, lost);
      const uint64_t other = cluster_->Incarnation(job_, 1 - lost);
      Kill(lost);
      EXPECT_EQ(cluster_->State(job_), JOB_RUNNING);
      cluster_->PollAll();
      const WorkerAssignment& next = AssignmentOf(2);
      EXPECT_EQ(next.rank(), lost);
      EXPECT_TRUE(next.rejoins());
      EXPECT_GT(next.incarnation(), before);
      for (const uint32_t pserver : {0, 1}) {
        EXPECT_EQ(Hosted(pserver).route().generation(), 2u);
        const auto& fenced = Hosted(pserver).incarnations();
        ASSERT_EQ(fenced.size(), 2);
        EXPECT_EQ(fenced[lost], next.incarnation());
        EXPECT_EQ(fenced[1 - lost], other);
      }
      ASSERT_NO_FATAL_FAILURE(Drive(sync(), 0));
      const JobResult result = Result();
      EXPECT_EQ(result.status(), "done") << result.message();
      EXPECT_EQ(result.examples(), 200u);
      EXPECT_EQ(result.recovery().worker_losses(), 1u);
      EXPECT_THAT(result.recovery().last(), AllOf(HasSubstr(absl::StrCat("worker ", lost)),
                                                  HasSubstr("signal 9"), HasSubstr("as worker 2")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, InEachMode, testing::Values(-1, 0, 7));

// Another life and generation have to be kept before anybody hears of them.
TEST_F(RankReplacementTest, NothingBeginsWhileTheStoreRefusesRecords) {
  JobConfig config = Config(0);
  config.mutable_recovery()->set_wait_s(30);
  Begin(config);
  const uint64_t generation = Hosted(0).route().generation();
  const auto refuse = [&](const std::string& why) {
    cluster_->core_.StoreRefuses(why, cluster_->now_);
    cluster_->PollAll();
  };
  refuse("quota");
  Kill(0);
  cluster_->Advance(absl::Seconds(5));
  cluster_->PollAll();
  EXPECT_EQ(cluster_->State(job_), JOB_RUNNING);
  EXPECT_EQ(Hosted(0).route().generation(), generation);
  EXPECT_FALSE(AssignmentOf(2).has_job());
  // A queued job, and requests that need another attempt.
  const std::string queued = *cluster_->Submit(FakeCluster::Config(0, 1));
  cluster_->PollAll();
  EXPECT_EQ(cluster_->State(queued), JOB_QUEUED);
  EXPECT_THAT(cluster_->Status(queued).message(), HasSubstr("quota"));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(cluster_->core_.operators().ScaleJob(job_, 1, cluster_->now_)));
  EXPECT_TRUE(absl::IsFailedPrecondition(cluster_->Drain(0).status()));
  // The wait for a replacement begins with the store's return.
  for (int i = 0; i < 10; ++i) {
    cluster_->Advance(absl::Seconds(4));
    cluster_->PollAll();
  }
  EXPECT_EQ(cluster_->State(job_), JOB_RUNNING);
  refuse("");
  EXPECT_GT(Hosted(0).route().generation(), generation);
  EXPECT_EQ(AssignmentOf(2).rank(), 0u);
  EXPECT_EQ(cluster_->Status(job_).recovery().worker_losses(), 1u);
}

// An attempt that ended waits with its successor.
TEST_F(RankReplacementTest, AnAttemptBeginsWhenTheStoreTakesRecordsAgain) {
  Begin(Config(-1));
  const uint64_t instance = Hosted(0).instance();
  MemberEndedRequest ended;
  ended.set_role(ROLE_PSERVER);
  ended.set_rank(1);
  ended.set_pid(1);
  ended.set_process_space("space");
  cluster_->core_.StoreRefuses("quota", cluster_->now_);
  cluster_->core_.members().MemberEnded(ended, cluster_->now_);
  cluster_->pservers_[1] = cluster_->Join(ROLE_PSERVER, 1, 2);
  cluster_->PollAll();
  EXPECT_EQ(Hosted(0).instance(), instance);
  cluster_->core_.StoreRefuses("", cluster_->now_);
  for (int i = 0; i < 4; ++i) {
    cluster_->PollAll();
    cluster_->Advance(absl::Seconds(1));
  }
  EXPECT_EQ(cluster_->State(job_), JOB_RUNNING);
  EXPECT_NE(Hosted(0).instance(), instance);
}

TEST_F(RankReplacementTest, AWorkerLostWhileTheJobStartsIsReplacedWithoutAFence) {
  job_ = *cluster_->Submit(Config(-1));
  ASSERT_EQ(cluster_->State(job_), JOB_STARTING);
  Kill(1);
  EXPECT_EQ(cluster_->State(job_), JOB_STARTING);
  cluster_->PollAll();
  EXPECT_EQ(cluster_->State(job_), JOB_RUNNING);
  EXPECT_EQ(AssignmentOf(2).rank(), 1u);
  EXPECT_FALSE(AssignmentOf(2).rejoins());
  EXPECT_EQ(Hosted(0).route().generation(), 1u);
  EXPECT_EQ(Hosted(0).incarnations_size(), 0);
  ASSERT_NO_FATAL_FAILURE(Drive(true, 0));
  EXPECT_EQ(Result().status(), "done");
}

TEST_F(RankReplacementTest, TheNewLifeBeginsWhenAllPserversHaveFencedTheOldOne) {
  Begin(Config(-1));
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  Kill(1);
  const auto poll = [&](uint64_t id) { EXPECT_TRUE(cluster_->Poll(id).ok()); };
  for (int i = 0; i < 3; ++i) {
    poll(cluster_->pservers_[0]);
    poll(cluster_->workers_[0]);
    poll(cluster_->workers_[2]);
    EXPECT_FALSE(cluster_->desired_[cluster_->workers_[2]].has_assignment());
  }
  EXPECT_THAT(cluster_->Status(job_).waiting_for(), HasSubstr("worker 2"));
  for (int i = 0; i < 2; ++i) poll(cluster_->pservers_[1]);
  poll(cluster_->workers_[2]);
  EXPECT_EQ(AssignmentOf(2).rank(), 1u);
}

TEST_F(RankReplacementTest, TheOldLifeIsRefused) {
  Begin(Config(0));
  ASSERT_NO_FATAL_FAILURE(Drive(false, 2));
  NextPhaseRequest request;
  request.set_job_id(job_);
  request.set_rank(1);
  request.set_incarnation(cluster_->Incarnation(job_, 1));
  NextTaskRequest task;
  task.set_job_id(job_);
  task.set_rank(1);
  task.set_incarnation(request.incarnation());
  Kill(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(absl::IsAborted(cluster_->core_.NextPhase(request, cluster_->now_).status()));
    EXPECT_TRUE(absl::IsAborted(cluster_->core_.NextTask(task, cluster_->now_).status()));
    cluster_->PollAll();
  }
}

RankPosition Committed(uint64_t step, uint64_t examples) {
  RankPosition position;
  position.set_incarnation(1);
  position.set_sequence(step);
  position.set_committed(step);
  position.mutable_totals()->set_examples(examples);
  position.mutable_totals()->set_steps(step);
  position.mutable_totals()->set_loss_sum(0.5 * static_cast<double>(examples));
  position.mutable_totals()->set_weight_sum(static_cast<double>(examples));
  position.mutable_totals()->set_net_state("net");
  return position;
}

TEST_F(RankReplacementTest, ASyncRankContinuesAfterItsLastCommitAtAnyPserver) {
  Begin(Config(-1));
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  cluster_->held_[cluster_->pservers_[0]] = {RankPosition(), Committed(3, 30)};
  cluster_->held_[cluster_->pservers_[1]] = {RankPosition(), Committed(4, 40)};
  Kill(1);
  cluster_->PollAll();
  EXPECT_FALSE(cluster_->Phase(job_, 1)->ready()) << "first it must tell which files it sees";
  const auto reply = cluster_->Phase(job_, 1, SeenAgain(1, true));
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_TRUE(reply->ready());
  const Phase& phase = reply->phase();
  EXPECT_EQ(phase.number(), 2u);
  EXPECT_EQ(phase.global_steps(), 5u);
  EXPECT_EQ(phase.skip_steps(), 4u);
  EXPECT_EQ(phase.commit_again(), 4u);
  EXPECT_EQ(phase.resume().train().examples(), 40u);
  EXPECT_EQ(phase.resume().train().loss_sum(), 20);
  EXPECT_EQ(phase.resume().net_state(), "net");
  EXPECT_THAT(phase.pieces().examples(), ElementsAre(50, 50));
  const Phase others = cluster_->Phase(job_, 0)->phase();
  EXPECT_EQ(others.skip_steps(), 0u);
  EXPECT_EQ(others.commit_again(), 0u);
  EXPECT_FALSE(others.has_resume());
}

TEST_F(RankReplacementTest, ASyncRankWithoutACommitInTheEpochReplaysItsFirstStep) {
  Begin(Config(-1, /*epochs=*/2));
  ASSERT_NO_FATAL_FAILURE(Drive(true, 4));
  for (const uint64_t id : cluster_->pservers_)
    cluster_->held_[id] = {RankPosition(), Committed(5, 50)};
  Kill(1);
  cluster_->PollAll();
  const Phase phase = cluster_->Phase(job_, 1, SeenAgain(1, true))->phase();
  EXPECT_EQ(phase.number(), 4u);
  EXPECT_EQ(phase.first_step(), 5u);
  EXPECT_EQ(phase.skip_steps(), 0u);
  EXPECT_EQ(phase.commit_again(), 0u);
  EXPECT_EQ(phase.resume().train().steps(), 0u);
  EXPECT_EQ(phase.resume().net_state(), "net");
  EXPECT_THAT(phase.pieces().examples(), ElementsAre(50, 50)) << "the earlier life had them";
}

TEST_F(RankReplacementTest, AnImpossibleCommitFailsTheJob) {
  Begin(Config(-1));
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  cluster_->held_[cluster_->pservers_[0]] = {RankPosition(), Committed(6, 60)};
  Kill(1);
  cluster_->PollAll();
  EXPECT_EQ(Result().status(), "failed");
}

TEST_F(RankReplacementTest, TasksOfALostRankAreFreeAgainFromTheLeastPositionOn) {
  JobConfig config = Config(0);
  config.mutable_data()->set_shuffle(false);
  Begin(config);
  ASSERT_NO_FATAL_FAILURE(Drive(false, 2));
  for (const uint64_t id : {1, 2, 3}) EXPECT_EQ(cluster_->Task(job_, 1, 0, 0)->task().id(), id);
  RankPosition least, most;
  least.set_incarnation(cluster_->Incarnation(job_, 1));
  least.set_sequence(6);
  least.set_task_id(2);
  least.set_task_end(4);
  least.mutable_totals()->set_examples(14);
  least.mutable_totals()->set_steps(6);
  most = least;
  most.set_sequence(8);
  most.set_task_end(8);
  most.mutable_totals()->set_examples(18);
  cluster_->held_[cluster_->pservers_[0]] = {RankPosition(), most};
  cluster_->held_[cluster_->pservers_[1]] = {RankPosition(), least};
  Kill(1);
  EXPECT_EQ(cluster_->Task(job_, 0, 0, 0)->task().id(), 4u) << "what shards hold is not known yet";
  cluster_->PollAll();
  // Any rank may have them at once.
  const NextTaskReply rest = *cluster_->Task(job_, 0, 0, 4);
  EXPECT_EQ(rest.task().id(), 2u);
  EXPECT_EQ(rest.task().first_offset(), 4u);
  const Phase phase = cluster_->Phase(job_, 1, SeenAgain(1, false))->phase();
  EXPECT_EQ(phase.resume().train().examples(), 14u);
  EXPECT_EQ(phase.resume().train().steps(), 6u);
  EXPECT_EQ(cluster_->Task(job_, 1, 0, 0)->task().id(), 3u);
  EXPECT_EQ(cluster_->Status(job_).recovery().examples_replayed(), 4u);
}

TEST_F(RankReplacementTest, ExamplesOfALifeThatOnlySomeShardsKnowCountAsTrainedAgain) {
  JobConfig config = Config(0);
  config.mutable_data()->set_shuffle(false);
  Begin(config);
  ASSERT_NO_FATAL_FAILURE(Drive(false, 2));
  EXPECT_EQ(cluster_->Task(job_, 1, 0, 0)->task().id(), 1u);
  RankPosition first_frame;
  first_frame.set_incarnation(cluster_->Incarnation(job_, 1));
  first_frame.set_sequence(1);
  first_frame.set_task_id(1);
  first_frame.set_task_end(4);
  first_frame.mutable_totals()->set_examples(4);
  first_frame.mutable_totals()->set_steps(1);
  cluster_->held_[cluster_->pservers_[0]] = {RankPosition(), first_frame};
  cluster_->held_[cluster_->pservers_[1]] = {RankPosition(), RankPosition()};
  Kill(1);
  cluster_->PollAll();
  EXPECT_EQ(cluster_->Task(job_, 0, 0, 0)->task().first_offset(), 0u);
  EXPECT_EQ(cluster_->Status(job_).recovery().examples_replayed(), 4u);
}

TEST_F(RankReplacementTest, ALifeThatBeginsBetweenEpochsContinuesTheStepsOfItsRank) {
  Begin(Config(5, /*epochs=*/2));
  ASSERT_NO_FATAL_FAILURE(Drive(false, 3));
  Kill(1);
  ASSERT_NO_FATAL_FAILURE(Drive(false, 4));
  const Phase phase = cluster_->Phase(job_, 1)->phase();
  EXPECT_EQ(phase.kind(), Phase::TRAIN);
  EXPECT_TRUE(phase.has_resume());
  EXPECT_EQ(phase.first_step(), cluster_->Status(job_).global_step() / 2);
  EXPECT_FALSE(cluster_->Phase(job_, 0)->phase().has_resume());
}

TEST_F(RankReplacementTest, ANewLifeThatSeesOtherFilesFailsTheJob) {
  Begin(Config(-1));
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  Kill(1);
  cluster_->PollAll();
  PhaseReport report = SeenAgain(1, true);
  report.mutable_index()->mutable_train_seen(0)->set_bytes(7);
  EXPECT_EQ(cluster_->Phase(job_, 1, report)->phase().kind(), Phase::FINISH);
  EXPECT_THAT(Result().message(), HasSubstr("train.csv"));
}

TEST_F(RankReplacementTest, WithoutAWorkerTheJobFailsAfterItsBoundAndNamesTheLostOne) {
  JobConfig config = Config(-1);
  config.mutable_recovery()->set_wait_s(30);
  Begin(config);
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  Kill(2);
  Kill(1);
  for (int second = 0; second < 29; ++second) {
    cluster_->PollAll();
    ASSERT_EQ(cluster_->State(job_), JOB_RUNNING) << second;
    EXPECT_THAT(cluster_->Status(job_).waiting_for(),
                AllOf(HasSubstr("rank 1"), HasSubstr("worker 1")));
    cluster_->Advance(absl::Seconds(1));
  }
  cluster_->PollAll();
  cluster_->Advance(absl::Seconds(2));
  const JobResult result = Result();
  EXPECT_EQ(result.status(), "failed");
  EXPECT_THAT(result.message(), AllOf(HasSubstr("worker 1"), HasSubstr("30s")));
}

TEST_F(RankReplacementTest, ARestartedProcessTakesItsRankBackBeforeAnyOther) {
  Begin(Config(-1));
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  Kill(2);
  Kill(1);
  cluster_->PollAll();
  // Both come back, and report at the same time.
  cluster_->workers_[2] = cluster_->Join(ROLE_WORKER, 2, /*pid=*/8);
  cluster_->workers_[1] = cluster_->Join(ROLE_WORKER, 1, /*pid=*/9);
  ASSERT_TRUE(cluster_->Poll(cluster_->workers_[1]).ok());
  cluster_->PollAll();
  EXPECT_EQ(AssignmentOf(1).rank(), 1u);
  EXPECT_FALSE(cluster_->desired_[cluster_->workers_[2]].has_assignment());
  ASSERT_NO_FATAL_FAILURE(Drive(true, 0));
  EXPECT_EQ(Result().status(), "done");
}

// Data that a program gives may be that of one rank (`source=` with an iterable).
TEST_F(RankReplacementTest, AProcessThatComesBackFirstTakesItsOwnRankOfTwoVacantOnes) {
  BeginAnew(2);
  Begin(Config(0));
  ASSERT_NO_FATAL_FAILURE(Drive(false, 2));
  Kill(0);
  Kill(1);
  cluster_->PollAll();
  for (const uint32_t worker : {1, 0}) {
    cluster_->workers_[worker] = cluster_->Join(ROLE_WORKER, worker, /*pid=*/8 + worker);
    cluster_->PollAll();
    ASSERT_TRUE(cluster_->desired_[cluster_->workers_[worker]].has_assignment()) << worker;
    EXPECT_EQ(AssignmentOf(worker).rank(), worker);
  }
  ASSERT_NO_FATAL_FAILURE(Drive(false, 0));
  const JobResult result = Result();
  EXPECT_EQ(result.status(), "done") << result.message();
  EXPECT_EQ(result.examples(), 100u);
  EXPECT_EQ(result.recovery().worker_losses(), 2u);
}

TEST_F(RankReplacementTest, ALossBeyondTheLimitFailsTheJob) {
  JobConfig config = Config(-1);
  config.mutable_recovery()->set_max_losses(1);
  Begin(config);
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  Kill(1);
  cluster_->PollAll();
  EXPECT_EQ(cluster_->State(job_), JOB_RUNNING);
  Kill(0);
  const JobResult result = Result();
  EXPECT_EQ(result.status(), "failed");
  EXPECT_THAT(result.message(), HasSubstr("worker 0"));
}

TEST_F(RankReplacementTest, AVacantRankComesBeforeQueuedJobs) {
  Begin(Config(-1));
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  const std::string queued = *cluster_->Submit(Config(-1));
  Kill(1);
  cluster_->PollAll();
  EXPECT_EQ(AssignmentOf(2).job().job_id(), job_);
  EXPECT_EQ(cluster_->State(queued), JOB_QUEUED);
}

TEST_F(RankReplacementTest, ACancelledJobReleasesTheWorkerTakenForAVacantRank) {
  Begin(Config(-1));
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  Kill(1);
  ASSERT_TRUE(cluster_->core_.operators().CancelJob(job_, cluster_->now_).ok());
  cluster_->PollAll();
  EXPECT_EQ(Result().status(), "cancelled");
  cluster_->Run(FakeCluster::Config(0, 2));
}

TEST_F(RankReplacementTest, ACheckpointThatNeedsTheLostRanksPartFailsAtOnce) {
  JobConfig config = Config(-1, /*epochs=*/2);
  config.mutable_checkpoint()->set_every_steps(3);
  config.set_output_dir("/out");
  Begin(config);
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  ASSERT_EQ(AssignmentOf(0).checkpoint().number(), 1u);
  HostedCut cut;
  cut.set_checkpoint(1);
  cut.set_state(HostedCut::WRITING);
  cut.set_step(3);
  cluster_->hosted_cuts_[cluster_->pservers_[0]] = cut;
  cluster_->PollAll();
  Kill(1);
  EXPECT_EQ(cluster_->Status(job_).checkpoint().failed(), 1u);
  EXPECT_THAT(cluster_->Status(job_).checkpoint().last_error(), HasSubstr("rank 1"));
  cluster_->PollAll();
  EXPECT_GE(cluster_->desired_[cluster_->pservers_[0]].cuts(0).over(), 1u);
  EXPECT_GT(AssignmentOf(0).checkpoint().number(), 1u);
  ASSERT_NO_FATAL_FAILURE(Drive(true, 0));
  EXPECT_EQ(Result().status(), "done");
}

class TwoSpareWorkers : public RankReplacementTest {
 protected:
  TwoSpareWorkers() : RankReplacementTest(4) {}
};

TEST_F(TwoSpareWorkers, PositionsOfEarlierLivesSayNothingOfTheLostOnesTasks) {
  JobConfig config = Config(0);
  config.mutable_data()->set_shuffle(false);
  Begin(config);
  ASSERT_NO_FATAL_FAILURE(Drive(false, 2));
  for (const uint64_t id : {1, 2}) EXPECT_EQ(cluster_->Task(job_, 1, 0, 0)->task().id(), id);
  RankPosition least;
  least.set_incarnation(cluster_->Incarnation(job_, 1));
  least.set_sequence(3);
  least.set_task_id(2);
  least.set_task_end(5);
  least.mutable_totals()->set_examples(15);
  least.mutable_totals()->set_steps(3);
  RankPosition most = least;
  most.set_sequence(4);
  most.set_task_end(8);
  most.mutable_totals()->set_examples(18);
  most.mutable_totals()->set_steps(4);
  cluster_->held_[cluster_->pservers_[0]] = {RankPosition(), least};
  cluster_->held_[cluster_->pservers_[1]] = {RankPosition(), most};
  Kill(1);
  cluster_->PollAll();
  EXPECT_EQ(cluster_->Phase(job_, 1, SeenAgain(1, false))->phase().resume().train().examples(),
            15u);
  for (const uint64_t id : {2, 3}) EXPECT_EQ(cluster_->Task(job_, 1, 0, 0)->task().id(), id);
  // Pserver 1 still holds only frames of the first life when the second one is lost.
  RankPosition second = least;
  second.set_incarnation(cluster_->Incarnation(job_, 1));
  second.set_sequence(1);
  second.set_task_end(9);
  second.mutable_totals()->set_examples(19);
  cluster_->held_[cluster_->pservers_[0]] = {RankPosition(), second};
  Kill(2);
  cluster_->PollAll();
  const NextTaskReply whole = *cluster_->Task(job_, 0, 0, 0);
  EXPECT_EQ(whole.task().id(), 2u);
  EXPECT_EQ(whole.task().first_offset(), 5u);
  EXPECT_EQ(cluster_->Task(job_, 0, 0, 0)->task().id(), 3u);
  const Phase phase = cluster_->Phase(job_, 1, SeenAgain(1, false))->phase();
  EXPECT_EQ(phase.resume().train().examples(), 15u) << "the lost life went on from there";
  EXPECT_EQ(phase.first_step(), 3u);
}

TEST_F(TwoSpareWorkers, SeveralWorkersAtOnce) {
  for (const int mode : {-1, 0}) {
    for (uint64_t phase = 1; phase <= 4; ++phase) {
      SCOPED_TRACE(absl::StrCat("mode ", mode, ", phase ", phase));
      BeginAnew(4);
      Begin(Config(mode));
      ASSERT_NO_FATAL_FAILURE(Drive(mode < 0, phase));
      Kill(0);
      Kill(1);
      cluster_->PollAll();
      EXPECT_EQ(Hosted(0).route().generation(), 3u);
      ASSERT_NO_FATAL_FAILURE(Drive(mode < 0, 0));
      const JobResult result = Result();
      EXPECT_EQ(result.status(), "done") << result.message();
      EXPECT_EQ(result.examples(), 100u);
      EXPECT_EQ(result.recovery().worker_losses(), 2u);
    }
  }
}

TEST_F(TwoSpareWorkers, AWorkerLostBeforeItsAssignmentLeavesTheRankVacantAgain) {
  Begin(Config(-1));
  ASSERT_NO_FATAL_FAILURE(Drive(true, 2));
  Kill(1);
  EXPECT_EQ(Hosted(0).incarnations_size(), 0) << "the pservers have not heard of it yet";
  Kill(2);
  cluster_->PollAll();
  EXPECT_EQ(AssignmentOf(3).rank(), 1u);
  EXPECT_EQ(Hosted(0).route().generation(), 2u);
  EXPECT_EQ(cluster_->Status(job_).recovery().worker_losses(), 1u);
  ASSERT_NO_FATAL_FAILURE(Drive(true, 0));
  EXPECT_EQ(Result().status(), "done");
}

TEST_F(TwoSpareWorkers, TheSameRankIsReplacedAgainAndAgain) {
  Begin(Config(0));
  ASSERT_NO_FATAL_FAILURE(Drive(false, 2));
  for (const uint32_t serving : {1, 2, 3}) {
    ASSERT_EQ(AssignmentOf(serving).rank(), 1u) << serving;
    Kill(serving);
    cluster_->PollAll();
  }
  EXPECT_THAT(cluster_->Status(job_).waiting_for(), HasSubstr("worker 3"));
  cluster_->workers_[1] = cluster_->Join(ROLE_WORKER, 1, /*pid=*/20);
  ASSERT_NO_FATAL_FAILURE(Drive(false, 0));
  const JobResult result = Result();
  EXPECT_EQ(result.status(), "done") << result.message();
  EXPECT_EQ(result.examples(), 100u);
  EXPECT_EQ(result.recovery().worker_losses(), 3u);
}

}  // namespace
}  // namespace sluice
