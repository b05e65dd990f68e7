// Jobs of a cluster without pservers, in a whole core with fake workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/recovery/job_losses.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class NoPserversTest : public testing::Test {
 protected:
  NoPserversTest() : c_(0, 2) { c_.JoinAll(0, 2); }

  static JobConfig Config() {
    JobConfig config = FakeCluster::Config(-1, 2, /*epochs=*/2);
    config.add_tables()->set_update_at(TableConfig::COLLECTIVE);
    config.mutable_checkpoint()->set_every_steps(3);
    config.mutable_checkpoint()->set_keep(2);
    config.set_output_dir("/out");
    config.clear_recovery();
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
  void ReportWorker(uint32_t rank, uint64_t number, uint64_t step) {
    WorkerCut cut;
    cut.set_job_id(job_);
    cut.set_rank(rank);
    cut.set_incarnation(c_.Incarnation(job_, rank));
    cut.set_checkpoint(number);
    cut.set_step(step);
    cut.mutable_state()->mutable_train()->set_examples(30);
    if (rank == 0) cut.mutable_state()->add_dense_files()->set_name("dense-0.shard");
    c_.worker_cuts_[c_.workers_[rank]] = cut;
    c_.PollAll();
  }
  // The order to put a checkpoint in force; null: there is none.
  std::unique_ptr<OutputAction> CheckpointOrder() {
    for (OutputAction& action : c_.core_.TakeActions()) {
      if (action.kind == OutputAction::kCheckpoint)
        return std::make_unique<OutputAction>(std::move(action));
    }
    return nullptr;
  }
  // Checkpoint 1, of step 3.
  void MakeCheckpoint() {
    ReportWorker(0, 1, 3);
    EXPECT_EQ(CheckpointOrder(), nullptr) << "rank 1 lacks its part";
    ReportWorker(1, 1, 3);
    const auto order = CheckpointOrder();
    ASSERT_NE(order, nullptr);
    EXPECT_EQ(order->manifest.global_step(), 3u);
    ASSERT_EQ(order->manifest.files_size(), 1);
    EXPECT_EQ(order->manifest.files(0).name(), "dense-0.shard");
    c_.core_.CheckpointWritten(job_, 1, absl::OkStatus(), "", c_.now_);
    c_.worker_cuts_.clear();
    c_.PollAll();
  }
  void KillWorker(uint32_t rank) {
    MemberEndedRequest ended;
    ended.set_role(ROLE_WORKER);
    ended.set_rank(rank);
    ended.set_pid(1);
    ended.set_process_space("space");
    c_.core_.members().MemberEnded(ended, c_.now_);
    c_.desired_.erase(c_.workers_[rank]);
  }
  // The worker of a rank ends, and its next process takes over.
  void ReplaceWorker(uint32_t rank) {
    KillWorker(rank);
    c_.groups_.erase(c_.workers_[rank]);
    c_.workers_[rank] = c_.Join(ROLE_WORKER, rank, /*pid=*/2);
    c_.PollAll();
    c_.Advance(absl::Seconds(1));
    c_.PollAll();
  }
  RankGroupReport GroupReport(uint32_t rank, uint64_t generation, const std::string& card,
                              bool holds = true) {
    RankGroupReport report;
    report.set_job_id(job_);
    report.set_rank(rank);
    report.set_incarnation(Assignment(rank).incarnation());
    report.set_generation(generation);
    report.set_card(card);
    report.set_holds_tables(holds);
    return report;
  }
  void ReportGroup(uint32_t rank, uint64_t generation, const std::string& card, bool holds = true) {
    c_.groups_[c_.workers_[rank]] = GroupReport(rank, generation, card, holds);
    c_.PollAll();
  }
  const WorkerAssignment& Assignment(uint32_t rank) {
    return c_.desired_[c_.workers_[rank]].assignment();
  }
  const JobSpec& Spec(uint32_t rank) { return Assignment(rank).job(); }

  FakeCluster c_;
  std::string job_;
};

TEST_F(NoPserversTest, TheClusterIsReadyAndRefusesPservers) {
  EXPECT_EQ(c_.core_.NotReady(), "");
  EXPECT_EQ(c_.core_.Register(FakeCluster::Registration(ROLE_PSERVER, 0), c_.now_).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(c_.Drain(0).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(NoPserversTest, AJobRunsWithWorkersAloneAndTheNextOneFollows) {
  JobConfig config = Config();
  config.mutable_train()->set_epochs(1);
  config.clear_checkpoint();
  for (int run = 0; run < 2; ++run) {
    config.set_output_dir(absl::StrCat("/out", run));
    StartTraining(config);
    EXPECT_EQ(c_.Status(job_).route().pservers_size(), 0);
    for (const uint32_t rank : {0, 1}) c_.Phase(job_, rank, Trained(2, 50)).status().IgnoreError();
    for (const uint32_t rank : {0, 1}) c_.Phase(job_, rank, Ended(3)).status().IgnoreError();
    PhaseReport saved = Ended(4);
    saved.mutable_save()->set_model_digest("d");
    c_.Phase(job_, 0, saved).status().IgnoreError();
    c_.Phase(job_, 1, Ended(4)).status().IgnoreError();
    c_.PollAll();
    EXPECT_EQ(c_.Phase(job_, 1, Ended(4))->phase().kind(), Phase::FINISH);
    EXPECT_EQ(c_.Phase(job_, 0, Ended(4))->phase().kind(), Phase::FINISH);
    c_.WriteOutputs();
    EXPECT_EQ(c_.State(job_), JOB_DONE) << c_.Status(job_).message();
    EXPECT_EQ(c_.Status(job_).result().model_digest(), "d");
    c_.PollAll();
    for (const uint64_t id : c_.workers_) EXPECT_FALSE(c_.desired_[id].has_assignment());
  }
}

TEST_F(NoPserversTest, ACheckpointNeedsThePartsOfTheWorkersAlone) {
  StartTraining(Config());
  EXPECT_EQ(c_.desired_[c_.workers_[0]].assignment().checkpoint().every_steps(), 3u);
  MakeCheckpoint();
  EXPECT_EQ(c_.Status(job_).checkpoint().made(), 1u);
  EXPECT_EQ(c_.desired_[c_.workers_[0]].assignment().checkpoint().every_steps(), 3u);
}

TEST_F(NoPserversTest, ALostWorkerIsReplacedWhileTheOthersKeepTheTables) {
  StartTraining(Config());
  const JobSpec before = Spec(0);
  ReplaceWorker(1);
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(Spec(0).instance(), before.instance());
  EXPECT_EQ(Spec(0).route().generation(), before.route().generation() + 1) << "rank 0 is told";
  EXPECT_EQ(Spec(1).route().generation(), before.route().generation() + 1);
  EXPECT_TRUE(Assignment(1).rejoins());
  EXPECT_EQ(c_.Status(job_).recovery().worker_losses(), 1u);
  EXPECT_EQ(c_.Status(job_).recovery().rollbacks(), 0u);
  EXPECT_EQ(c_.Phase(job_, 1, SeenAgain(50, 1))->phase().kind(), Phase::TRAIN);
}

TEST_F(NoPserversTest, RanksGetTheCardsOnceAllHaveOneForTheNewestGeneration) {
  StartTraining(Config());
  const uint64_t first = Spec(0).route().generation();
  ReportGroup(0, first, "a");
  EXPECT_FALSE(Assignment(0).has_group());
  ReportGroup(1, first, "b");
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(Assignment(rank).group().generation(), first);
    EXPECT_THAT(Assignment(rank).group().cards(), testing::ElementsAre("a", "b"));
    EXPECT_EQ(Assignment(rank).group().closed_steps(), 0u);
  }
  for (const uint32_t rank : {0, 1}) ReportGroup(rank, first, "");  // they have met
  ReplaceWorker(1);
  EXPECT_FALSE(Assignment(0).has_group());
  // Rank 0 had ended its epoch of 5 steps, so they all have closed.
  c_.Phase(job_, 0, Trained(2, 50)).status().IgnoreError();
  ReportGroup(0, first + 1, "c");
  ReportGroup(1, first, "b", /*holds=*/false);
  EXPECT_FALSE(Assignment(0).has_group()) << "a card of the old generation";
  ReportGroup(1, first + 1, "d", /*holds=*/false);
  EXPECT_THAT(Assignment(1).group().cards(), testing::ElementsAre("c", "d"));
  EXPECT_EQ(Assignment(1).group().closed_steps(), 5u);
}

TEST_F(NoPserversTest, WithoutAnotherWorkerThatHoldsTheTablesTheJobGoesBack) {
  StartTraining(Config());
  MakeCheckpoint();
  const JobSpec before = Spec(0);
  ReplaceWorker(1);
  ASSERT_EQ(c_.Status(job_).recovery().rollbacks(), 0u);
  KillWorker(0);  // the new rank 1 has not got them
  EXPECT_EQ(c_.State(job_), JOB_RECOVERING);
  c_.workers_[0] = c_.Join(ROLE_WORKER, 0, /*pid=*/3);
  c_.PollAll();
  c_.Advance(absl::Seconds(1));
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(Spec(0).restore().step(), 3u);
  EXPECT_NE(Spec(0).instance(), before.instance());
  EXPECT_EQ(c_.Status(job_).recovery().rollbacks(), 1u);
}

TEST_F(NoPserversTest, ANewLifeThatHasGotTheTablesKeepsThemForTheNextLoss) {
  StartTraining(Config());
  ReplaceWorker(1);
  ReportGroup(1, Spec(1).route().generation(), "", /*holds=*/true);
  ReplaceWorker(0);
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  EXPECT_EQ(c_.Status(job_).recovery().rollbacks(), 0u);
  EXPECT_EQ(c_.Status(job_).recovery().worker_losses(), 2u);
}

TEST_F(NoPserversTest, RanksThatCannotContinueInPlaceTakeTheJobBack) {
  StartTraining(Config());
  MakeCheckpoint();
  ReplaceWorker(1);
  const uint64_t generation = Spec(0).route().generation();
  RankGroupReport report = GroupReport(0, generation - 1, "");
  report.set_error("of an earlier meeting");
  c_.groups_[c_.workers_[0]] = report;
  c_.PollAll();
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
  report.set_generation(generation);
  report.set_error("no rank has the gradients");
  c_.groups_[c_.workers_[0]] = report;
  c_.PollAll();
  c_.Advance(absl::Seconds(1));
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(Spec(0).restore().step(), 3u);
  EXPECT_EQ(c_.Status(job_).recovery().rollbacks(), 1u);
}

TEST_F(NoPserversTest, AGroupThatFailsAfterEachCheckpointNeverFailsTheJob) {
  JobConfig config = Config();
  config.mutable_checkpoint()->set_every_steps(1);
  StartTraining(config);
  for (uint64_t number = 1; number <= 2 * kMaxGroupFaults; ++number) {
    const WorkerCheckpoint asked = Assignment(0).checkpoint();
    for (const uint32_t rank : {0, 1}) ReportWorker(rank, asked.number(), number);
    c_.core_.CheckpointWritten(job_, asked.number(), absl::OkStatus(), "", c_.now_);
    c_.worker_cuts_.clear();
    c_.PollAll();
    RankGroupReport report = GroupReport(1, Spec(1).route().generation(), "");
    report.set_error("the connection to rank 0 broke");
    c_.groups_[c_.workers_[1]] = report;
    c_.PollAll();
    c_.groups_.clear();
    c_.Advance(absl::Seconds(1));
    c_.PollAll();
    ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
    EXPECT_EQ(c_.Status(job_).recovery().rollbacks(), number);
    EXPECT_EQ(Spec(0).restore().step(), number);
    for (const uint32_t rank : {0, 1})
      c_.Phase(job_, rank, Indexed(50, rank)).status().IgnoreError();
    c_.PollAll();
  }
}

TEST_F(NoPserversTest, AGroupThatKeepsFailingEndsTheJob) {
  StartTraining(Config());
  for (uint32_t fault = 0; fault <= kMaxGroupFaults; ++fault) {
    ASSERT_EQ(c_.State(job_), JOB_RUNNING) << fault;
    RankGroupReport report = GroupReport(1, Spec(1).route().generation(), "");
    report.set_error("the connection to rank 0 broke");
    c_.groups_[c_.workers_[1]] = report;
    c_.PollAll();
    c_.groups_.clear();
    c_.Advance(absl::Seconds(1));
    c_.PollAll();
  }
  c_.WriteOutputs();
  EXPECT_EQ(c_.State(job_), JOB_FAILED);
  EXPECT_THAT(c_.Status(job_).message(), HasSubstr("the connection to rank 0 broke"));
  EXPECT_EQ(c_.Status(job_).recovery().rollbacks(), kMaxGroupFaults);
}

class ShrinkWithoutPserversTest : public NoPserversTest {
 protected:
  // Rank 1 is lost, and rank 0 has closed 4 steps.
  void LoseRank1(bool totals_known) {
    JobConfig config = Config();
    config.mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(SyncConfigs::SHRINK);
    StartTraining(config);
    MakeCheckpoint();
    const uint64_t generation = Spec(0).route().generation();
    KillWorker(1);
    c_.PollAll();
    ASSERT_EQ(c_.State(job_), JOB_RUNNING);
    EXPECT_EQ(Assignment(0).checkpoint().number(), 0u);
    RankGroupReport report = GroupReport(0, generation + 1, "c");
    report.set_closed_steps(4);
    for (uint64_t examples : {18, 20}) {
      if (totals_known) report.add_totals()->set_examples(examples);
    }
    c_.groups_[c_.workers_[0]] = report;
    c_.PollAll();
  }
};

TEST_F(ShrinkWithoutPserversTest, TheJobContinuesAfterTheLastStepThatSomeRankHasClosed) {
  LoseRank1(/*totals_known=*/true);
  EXPECT_EQ(Assignment(0).group().closed_steps(), 4u);
  EXPECT_EQ(Assignment(0).group().cards_size(), 0) << "the ranks do not meet";
  const WorkerCheckpoint wanted = Assignment(0).checkpoint();
  EXPECT_TRUE(wanted.by_order());
  EXPECT_TRUE(wanted.writes_tables());
  EXPECT_EQ(wanted.at_step(), 4u);
  ReportWorker(0, wanted.number(), 4);
  const auto order = CheckpointOrder();
  ASSERT_NE(order, nullptr);
  EXPECT_EQ(order->manifest.global_step(), 4u);
  EXPECT_EQ(order->manifest.files_size(), 1);
  EXPECT_EQ(order->manifest.checkpoint().workers(1).train().examples(), 20u);
  c_.core_.CheckpointWritten(job_, wanted.number(), absl::OkStatus(), "", c_.now_);
  c_.worker_cuts_.clear();
  c_.PollAll();
  c_.Advance(absl::Seconds(1));
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(Spec(0).worker_num(), 1u);
  EXPECT_EQ(Spec(0).restore().step(), 4u);
  EXPECT_EQ(c_.Status(job_).recovery().shrinks(), 1u);
  EXPECT_EQ(c_.Status(job_).recovery().rollbacks(), 0u);
}

TEST_F(ShrinkWithoutPserversTest, WithoutTheSumsOfTheLostRankTheJobGoesBack) {
  LoseRank1(/*totals_known=*/false);
  c_.Advance(absl::Seconds(1));
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(Spec(0).worker_num(), 1u);
  EXPECT_EQ(Spec(0).restore().step(), 3u);
  EXPECT_EQ(c_.Status(job_).recovery().shrinks(), 1u);
  EXPECT_EQ(c_.Status(job_).recovery().rollbacks(), 1u);
}

TEST_F(NoPserversTest, AJobScalesFromACheckpoint) {
  StartTraining(Config());
  ASSERT_TRUE(c_.core_.operators().ScaleJob(job_, 1, c_.now_).ok());
  MakeCheckpoint();
  c_.Advance(absl::Seconds(1));
  c_.PollAll();
  c_.Advance(absl::Seconds(1));
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(Spec(0).worker_num(), 1u);
  EXPECT_EQ(c_.Status(job_).recovery().scalings(), 1u);
}

}  // namespace
}  // namespace sluice
