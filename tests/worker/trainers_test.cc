// Checks the order of calls in sync and async training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "client/key_set.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/worker/fakes.h"
#include "worker/data/batch_keys.h"
#include "worker/step/source_state_file.h"
#include "worker/train/async_trainer.h"
#include "worker/train/sync_trainer.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class TrainersTest : public ::testing::Test {
 protected:
  TrainersTest() : client_(model_, 1.0f) {
    spec_.mutable_config()->mutable_train()->set_pipeline_depth(1);
    context_.spec = &spec_;
    context_.model = &model_;
    context_.dense = &dense_;
    context_.net = &net_;
    context_.client = &client_;
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
  }

  void Train(Trainer* trainer, const std::vector<size_t>& sizes, uint64_t first_step = 0,
             uint32_t epoch = 0) {
    BatchQueue queue(sizes.size() + 1);
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto prepared = std::make_shared<PreparedBatch>();
      prepared->batch.n = sizes[i];
      if (sizes[i] > 0) prepared->batch.keys = {i};
      prepared->row_index.resize(prepared->batch.keys.size());
      prepared->keys.resize(1);
      dedup_.Run(*client_.tables()[0], prepared->batch.keys.data(), prepared->batch.keys.size(),
                 &prepared->keys[0], prepared->row_index.data());
      prepared->batch.task_id = prepared->batch.task_end = i + 1;
      prepared->last_of_task = true;
      queue.Push(prepared);
    }
    queue.Close(absl::OkStatus());
    EpochPlan plan;
    plan.first_step = first_step;
    plan.commit_again = commit_again_;
    plan.epoch = epoch;
    plan.task_trained = [this](uint64_t task, uint64_t) { trained_.push_back(task); };
    status_ = trainer->Train(plan, &queue);
  }

  FakeModel model_;
  PserverDenseTables dense_{&model_};
  OnesNet net_;
  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false};
  FakeClient client_;
  JobContext context_;
  KeyDeduplicator dedup_;
  std::vector<uint64_t> trained_;
  uint64_t commit_again_ = 0;  // of the plan
  absl::Status status_;
};

TEST_F(TrainersTest, SyncPushesThenCommitsEveryGlobalStep) {
  SyncTrainer trainer(context_);
  Train(&trainer, {3, 2, 0}, /*first_step=*/10);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(client_.steps, ElementsAre(10, 11, 12));
  EXPECT_THAT(client_.commits, ElementsAre(10, 11, 12));
  EXPECT_EQ(client_.pushes[0].weight, 3);
  // An empty slice takes part with weight 0 and no values.
  EXPECT_EQ(client_.pushes[2].weight, 0);
  EXPECT_EQ(client_.pushes[2].dense[0].values, nullptr);
  EXPECT_TRUE(client_.pushes[2].sparse[0].keys->keys.empty());
}

TEST_F(TrainersTest, SyncCommitsSayWhatTheRankHasTrained) {
  SyncTrainer trainer(context_);
  stats_.BeginEpoch(0);
  Train(&trainer, {3, 2});
  ASSERT_TRUE(status_.ok()) << status_;
  ASSERT_EQ(client_.commit_totals.size(), 2u);
  EXPECT_EQ(client_.commit_totals[0].examples(), 3u);
  EXPECT_EQ(client_.commit_totals[0].steps(), 1u);
  EXPECT_EQ(client_.commit_totals[0].net_state(), "1 steps");
  EXPECT_EQ(client_.commit_totals[1].examples(), 5u);
  EXPECT_EQ(client_.commit_totals[1].loss_sum(), stats_.EpochReport().loss_sum());
  EXPECT_EQ(client_.commit_totals[1].weight_sum(), stats_.EpochReport().weight_sum());
}

TEST_F(TrainersTest, AStateThatCannotBeHadEndsTheEpochBeforeTheCommit) {
  SyncTrainer trainer(context_);
  net_.state_status = absl::UnknownError("Traceback");
  Train(&trainer, {3, 2}, /*first_step=*/10);
  EXPECT_EQ(status_.message(), "Traceback");
  EXPECT_THAT(client_.commits, testing::IsEmpty());
}

TEST_F(TrainersTest, ASyncRankThatReplacesAnotherFirstRepeatsItsCommit) {
  SyncTrainer trainer(context_);
  stats_.BeginEpoch(0);
  TrainReport before;
  before.set_examples(40);
  stats_.StartFrom(before, 4, 6);
  commit_again_ = 10;
  Train(&trainer, {3, 2}, /*first_step=*/10);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(client_.commits, ElementsAre(9, 10, 11));
  EXPECT_THAT(client_.steps, ElementsAre(10, 11));
  EXPECT_EQ(client_.commit_totals[0].examples(), 40u);
  EXPECT_EQ(client_.commit_totals[1].examples(), 43u);
  // The lost life had done the last step of the epoch.
  client_.commits.clear();
  commit_again_ = 12;
  Train(&trainer, {}, /*first_step=*/12);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(client_.commits, ElementsAre(11));
}

class SyncCutsTest : public TrainersTest {
 protected:
  SyncCutsTest() {
    context_.cuts = &cuts_;
    stats_.BeginEpoch(0);
  }
  void Want(uint64_t number, uint64_t every_steps) {
    WorkerCheckpoint wanted;
    wanted.set_number(number);
    wanted.set_every_steps(every_steps);
    cuts_.SetWanted(wanted);
  }
  WorkerCut Cut() const {
    PollRequest report;
    cuts_.AddTo(&report);
    return report.cut();
  }

  WorkerCuts cuts_{"job", 0, 1, nullptr};
};

TEST_F(SyncCutsTest, Rank0AsksWithTheStepsCommitAndRecordsItsPartAfterIt) {
  SyncTrainer trainer(context_);
  Want(1, 12);  // the 12th global step is step 11
  Train(&trainer, {3, 2, 4, 6}, /*first_step=*/10);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(client_.commits, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(client_.checkpoints, ElementsAre(0, 1, 0, 0));
  EXPECT_EQ(Cut().checkpoint(), 1u);
  EXPECT_EQ(Cut().step(), 12u);
  EXPECT_EQ(Cut().state().train().steps(), 2u);
  EXPECT_EQ(Cut().state().train().examples(), 5u) << "the steps up to the cut and no other";
  EXPECT_EQ(Cut().state().net_state(), "2 steps");
}

TEST_F(SyncCutsTest, EveryRankKeepsTheStateAfterTheLastStepOfAnEpoch) {
  SyncTrainer trainer(context_);
  Train(&trainer, {3, 2, 4, 6}, /*first_step=*/10);
  ASSERT_TRUE(status_.ok()) << status_;
  WorkerCheckpoint wanted;
  wanted.set_number(1);
  wanted.set_by_order(true);
  wanted.set_at_step(14);
  cuts_.SetWanted(wanted);
  EXPECT_EQ(Cut().step(), 14u);
  EXPECT_EQ(Cut().state().train().examples(), 15u);
}

TEST_F(SyncCutsTest, AJobThatMayShrinkKeepsTheStateAfterEachClosedStep) {
  WorkerCheckpoint wanted;
  wanted.set_number(4);
  wanted.set_by_order(true);
  for (const bool shrinks : {false, true}) {
    if (shrinks) {
      spec_.mutable_config()->mutable_strategy()->mutable_sync_configs()->set_on_worker_loss(
          SyncConfigs::SHRINK);
    }
    SyncTrainer trainer(context_);
    // A step in the middle, and, as asked later, the last one.
    wanted.set_at_step(12);
    cuts_.SetWanted(wanted);
    Train(&trainer, {3, 2, 4, 6}, /*first_step=*/10);
    ASSERT_TRUE(status_.ok()) << status_;
    EXPECT_THAT(client_.checkpoints, Each(0u)) << "no commit names it";
    if (!shrinks) {
      EXPECT_EQ(Cut().checkpoint(), 0u);
    }
    stats_.BeginEpoch(0);
  }
  EXPECT_EQ(Cut().checkpoint(), 4u);
  EXPECT_EQ(Cut().step(), 12u);
  EXPECT_EQ(Cut().state().train().examples(), 5u);
  wanted.set_number(5);
  wanted.set_at_step(14);
  cuts_.SetWanted(wanted);
  EXPECT_EQ(Cut().checkpoint(), 5u);
  EXPECT_EQ(Cut().state().train().examples(), 15u);
}

TEST_F(SyncCutsTest, CutAfterTheLastStepOfAnEpoch) {
  SyncTrainer trainer(context_);
  Want(1, 3);
  Train(&trainer, {3, 2, 4});
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(client_.checkpoints, ElementsAre(0, 0, 1));
  EXPECT_EQ(Cut().step(), 3u);
  EXPECT_EQ(Cut().state().train().examples(), 9u);
  // The next epoch's first pull still names it.
  Want(2, 0);
  Train(&trainer, {1, 1}, /*first_step=*/3);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(Cut().checkpoint(), 2u);
  EXPECT_EQ(Cut().step(), 4u);
}

TEST_F(SyncCutsTest, OtherRanksLearnOfTheCutFromThePservers) {
  context_.rank = 1;
  SyncTrainer trainer(context_);
  Want(1, 0);
  client_.cuts = {{21, 6}};
  Train(&trainer, {3, 2, 4, 6}, /*first_step=*/20);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(client_.checkpoints, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(Cut().checkpoint(), 6u);
  EXPECT_EQ(Cut().step(), 22u);
  EXPECT_EQ(Cut().state().train().examples(), 5u);
}

TEST_F(SyncCutsTest, CutNamedByAnEpochsFirstPullIsNotRecorded) {
  context_.rank = 1;
  SyncTrainer trainer(context_);
  client_.cuts = {{0, 5}};
  client_.StartCommit(0, PullRequest(), 0, TrainTotals());  // this rank missed the answer's name
  Train(&trainer, {3}, /*first_step=*/1);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(Cut().checkpoint(), 0u);
}

TEST_F(SyncCutsTest, CutOfARepeatedCommitIsRecorded) {
  SyncTrainer trainer(context_);
  TrainReport before;
  before.set_examples(40);
  stats_.StartFrom(before, 4, 6);
  client_.cuts = {{9, 5}};
  commit_again_ = 10;
  Train(&trainer, {3}, /*first_step=*/10);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(Cut().checkpoint(), 5u);
  EXPECT_EQ(Cut().step(), 10u);
  EXPECT_EQ(Cut().state().train().examples(), 40u);
}

// A program ends the job early.
class EarlyEndTest : public SyncCutsTest {
 protected:
  EarlyEndTest() {
    BeginAnew();
    context_.end_training = [this](uint64_t steps) {
      asked_.push_back(steps);
      End(steps);
      return refuses_;
    };
  }
  void BeginAnew() { context_.end = &end_.emplace(); }
  void End(uint64_t last_step) {
    EarlyEnd end;
    end.set_last_step(last_step);
    end_->Set(end);
  }
  // The state that the rank has kept after this step.
  WorkerState KeptAfter(uint64_t step) {
    WorkerCheckpoint wanted;
    wanted.set_number(1);
    wanted.set_by_order(true);
    wanted.set_at_step(step);
    cuts_.SetWanted(wanted);
    return Cut().state();
  }

  std::optional<TrainingEnd> end_;
  std::vector<uint64_t> asked_;
  absl::Status refuses_;
};

TEST_F(EarlyEndTest, SyncStopsAfterTheLastStep) {
  SyncTrainer trainer(context_);
  End(12);
  Train(&trainer, {3, 2, 4}, /*first_step=*/10);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(client_.commits, ElementsAre(10, 11));
  EXPECT_EQ(KeptAfter(12).train().examples(), 5u);
  EXPECT_EQ(client_.pulls_under_way(), 0u);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(EarlyEndTest, SyncDropsAStepThatNeverCloses) {
  // Also when it is the last one of the epoch.
  for (const std::vector<size_t>& sizes : {std::vector<size_t>{3, 2, 4}, {3, 2}}) {
    BeginAnew();
    SyncTrainer trainer(context_);
    stats_.BeginEpoch(0);
    client_.closing = client_.commits.size() + 1;
    client_.on_wait = [this] {
      if (client_.commits.size() > client_.closing) End(11);
    };
    const uint64_t before = stats_.Examples();
    Train(&trainer, sizes, /*first_step=*/10);
    ASSERT_TRUE(status_.ok()) << status_;
    EXPECT_EQ(client_.commits.back(), 11u);
    EXPECT_EQ(client_.pulls_under_way(), 0u);
    EXPECT_EQ(stats_.EpochReport().examples(), 3u);
    EXPECT_EQ(stats_.EpochReport().steps(), 1u);
    EXPECT_EQ(stats_.EpochReport().weight_sum(), 3);
    EXPECT_EQ(stats_.EpochSteps(), 1u);
    EXPECT_EQ(stats_.Examples() - before, 3u);
    EXPECT_EQ(KeptAfter(11).train().examples(), 3u);
  }
}

TEST_F(EarlyEndTest, SyncClosesStepsBeforeTheLastOneAlthoughTheEndIsKnown) {
  SyncTrainer trainer(context_);
  client_.closing = 0;
  client_.on_wait = [this] { End(13); };
  Train(&trainer, {3, 2, 4}, /*first_step=*/10);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(client_.commits, ElementsAre(10, 11, 12));
  EXPECT_EQ(KeptAfter(13).train().examples(), 9u);
}

TEST_F(EarlyEndTest, SyncSaysAfterWhichStepItsProgramHasLeft) {
  SyncTrainer trainer(context_);
  net_.leaves_at = 2;
  Train(&trainer, {3, 2, 4}, /*first_step=*/10);
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(asked_, ElementsAre(12));
  EXPECT_THAT(client_.steps, ElementsAre(10, 11));
  EXPECT_EQ(stats_.EpochReport().examples(), 5u);
  EXPECT_EQ(KeptAfter(12).train().examples(), 5u);
  BeginAnew();
  refuses_ = absl::AbortedError("the job recovers");
  net_.leaves_at = 3;
  Train(&trainer, {3, 2}, /*first_step=*/12);
  EXPECT_TRUE(absl::IsAborted(status_));
}

TEST_F(EarlyEndTest, AsyncEndsAfterTheStepThatItIsIn) {
  spec_.mutable_config()->mutable_train()->set_pipeline_depth(2);
  AsyncTrainer trainer(context_);
  net_.on_step = [this] { End(0); };
  Train(&trainer, {3, 2, 4});
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(client_.pushes.size(), 1u);
  EXPECT_THAT(trained_, ElementsAre(1));
  EXPECT_EQ(client_.pulls_under_way(), 0u);
}

TEST_F(EarlyEndTest, AsyncEndsWhenItsProgramHasLeft) {
  AsyncTrainer trainer(context_);
  net_.leaves_at = 1;
  Train(&trainer, {3, 2, 4});
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(asked_, ElementsAre(0));
  EXPECT_EQ(client_.pushes.size(), 1u);
  EXPECT_THAT(trained_, ElementsAre(1));
  EXPECT_EQ(stats_.EpochReport().examples(), 3u);
  EXPECT_EQ(client_.pulls_under_way(), 0u);
}

TEST_F(TrainersTest, AsyncPushesEveryBatchOnceAndReportsItsTasks) {
  for (const int depth : {1, 3}) {
    client_.pushes.clear();
    trained_.clear();
    spec_.mutable_config()->mutable_train()->set_pipeline_depth(depth);
    AsyncTrainer trainer(context_);
    Train(&trainer, {3, 2, 1, 4, 4});
    ASSERT_TRUE(status_.ok()) << status_;
    ASSERT_EQ(client_.pushes.size(), 5u);
    for (size_t i = 0; i < 5; ++i)
      EXPECT_THAT(client_.pushes[i].sparse[0].keys->keys, ElementsAre(i));
    EXPECT_THAT(trained_, ElementsAre(1, 2, 3, 4, 5));
  }
}

TEST_F(TrainersTest, PullsOfTheNextBatchesAreInFlightDuringAStep) {
  for (const size_t depth : {1, 2, 3}) {
    SCOPED_TRACE(depth);
    std::vector<size_t> under_way;
    net_.on_step = [&] { under_way.push_back(client_.pulls_under_way()); };
    spec_.mutable_config()->mutable_train()->set_pipeline_depth(depth);
    AsyncTrainer trainer(context_);
    Train(&trainer, {3, 2, 1, 4, 4});
    ASSERT_TRUE(status_.ok()) << status_;
    ASSERT_EQ(under_way.size(), 5u);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(under_way[i], std::min(depth - 1, 4 - i)) << i;
  }
  net_.on_step = nullptr;
}

// With replicas, the answer to a push waits for the follower.
// A client whose answers may arrive before anybody waits for them.
class LandingClient : public FakeClient {
 public:
  using FakeClient::FakeClient;
  Ticket StartPull(PullRequest request) override {
    std::vector<std::pair<float*, size_t>> to;
    for (const auto& sparse : request.sparse)
      to.emplace_back(sparse.values, sparse.keys->keys.size());
    for (const auto& dense_table : request.dense) to.emplace_back(dense_table.values, dense.size());
    const Ticket ticket = FakeClient::StartPull(std::move(request));
    under_way[ticket] = std::move(to);
    return ticket;
  }
  absl::Status WaitPull(Ticket ticket) override {
    under_way.erase(ticket);
    return FakeClient::WaitPull(ticket);
  }
  // The answers of all pulls under way arrive now, with this value everywhere.
  void LandPulls(float value) {
    for (const auto& [ticket, to] : under_way) {
      for (const auto& [values, n] : to) std::fill_n(values, n, value);
    }
  }
  std::map<Ticket, std::vector<std::pair<float*, size_t>>> under_way;
};

// A net that reads its values twice, as forward and backward of a program do, and lets `between`
// run in between.
class TwoPassesNet : public OnesNet {
 public:
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override {
    const std::vector<float> forward = ValuesOf(input);
    between();
    EXPECT_EQ(ValuesOf(input), forward) << "step " << steps;
    ++steps;
    return OnesNet::TrainStep(input, seed, epoch, gradients);
  }
  std::function<void()> between;
  int steps = 0;

 private:
  static std::vector<float> ValuesOf(const NetInput& input) {
    std::vector<float> values = {input.dense[0][0], input.dense[0][1]};
    for (const RowsInput& rows : input.rows)
      values.insert(values.end(), rows.values, rows.values + rows.n);
    return values;
  }
};

TEST_F(TrainersTest, APullThatArrivesWithinAStepDoesNotChangeItsValues) {
  for (const uint32_t depth : {1, 2, 3}) {
    LandingClient client(model_, 1.0f);
    for (const uint64_t key : {0, 1, 2, 3, 4, 5}) client.rows[key] = 2;
    context_.client = &client;
    spec_.mutable_config()->mutable_train()->set_pipeline_depth(depth);
    TwoPassesNet net;
    std::vector<size_t> under_way;
    net.between = [&] {
      under_way.push_back(client.under_way.size());
      client.LandPulls(99);
    };
    context_.net = &net;
    AsyncTrainer trainer(context_);
    Train(&trainer, {3, 2, 2, 2, 2, 1});
    ASSERT_TRUE(status_.ok()) << status_;
    EXPECT_EQ(net.steps, 6);
    EXPECT_EQ(under_way[1], depth - 1) << "no pull could have arrived";
  }
}

TEST_F(TrainersTest, WithReplicasAPullFollowsThePushInARequestOfItsOwn) {
  for (const bool replicas : {false, true}) {
    SCOPED_TRACE(replicas);
    spec_.mutable_config()->mutable_recovery()->set_replicas(replicas);
    client_.pushes.clear();
    client_.pushes_before_pull.clear();
    client_.fused.clear();
    trained_.clear();
    AsyncTrainer trainer(context_);
    Train(&trainer, {3, 2, 1});
    ASSERT_TRUE(status_.ok()) << status_;
    EXPECT_THAT(client_.fused, ElementsAre(!replicas, !replicas, false));
    EXPECT_THAT(client_.pushes_before_pull, ElementsAre(0, 1, 2)) << "a worker sees its own push";
    EXPECT_THAT(trained_, ElementsAre(1, 2, 3));
  }
}

// All batches are in the queue from the start.
TEST_F(TrainersTest, EachBatchIsAnnouncedBeforeThePreviousStepRuns) {
  for (const int depth : {0, 1, 2, 7}) {
    SCOPED_TRACE(depth);
    net_ = OnesNet();
    SyncTrainer in_steps(context_);
    AsyncTrainer at_once(context_);
    Trainer* trainer = &at_once;
    if (depth == 0) trainer = &in_steps;
    spec_.mutable_config()->mutable_train()->set_pipeline_depth(std::max(depth, 1));
    Train(trainer, {3, 2, 1, 4, 4});
    ASSERT_TRUE(status_.ok()) << status_;
    EXPECT_THAT(net_.ahead, ElementsAre(false, true, true, true, true));
  }
}

TEST_F(TrainersTest, OverflowedStepPushesAnEmptyFrame) {
  for (const bool sync : {true, false}) {
    client_.pushes.clear();
    trained_.clear();
    net_.overflow_steps = {1};
    SyncTrainer in_steps(context_);
    AsyncTrainer at_once(context_);
    Trainer* trainer = &at_once;
    if (sync) trainer = &in_steps;
    Train(trainer, {3, 2, 1});
    ASSERT_TRUE(status_.ok()) << status_;
    ASSERT_EQ(client_.pushes.size(), 3u);
    const PushRequest& skipped = client_.pushes[1];
    EXPECT_EQ(skipped.weight, 0);
    EXPECT_TRUE(skipped.sparse[0].keys->keys.empty());
    EXPECT_EQ(skipped.sparse[0].keys->offsets.size(),
              client_.pushes[0].sparse[0].keys->offsets.size());
    EXPECT_EQ(skipped.dense[0].values, nullptr);
    EXPECT_EQ(skipped.position.task_id, 2u);
    EXPECT_EQ(client_.pushes[2].weight, 1);
    EXPECT_EQ(trained_.size(), sync ? 0u : 3u);
    EXPECT_EQ(stats_.skipped_steps(), sync ? 1u : 2u);
    net_ = OnesNet();
  }
}

// A net whose dense gradient is ready before the step ends, and is large enough to be sent early.
class EarlyNet : public OnesNet {
 public:
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override {
    const absl::Status status = OnesNet::TrainStep(input, seed, epoch, gradients);
    if (gradients->ready) gradients->ready(0);
    return status;
  }
};

TEST_F(TrainersTest, AsyncPushesALargeLayerOnceAsSoonAsItIsReady) {
  const FakeModel large(/*dense=*/100000);
  FakeClient client(large, 1.0f);
  EarlyNet net;
  context_.model = &large;
  context_.client = &client;
  context_.net = &net;
  AsyncTrainer trainer(context_);
  Train(&trainer, {3, 2});
  ASSERT_TRUE(status_.ok()) << status_;
  ASSERT_EQ(client.early.size(), 2u);
  ASSERT_EQ(client.pushes.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(client.early[i].weight, client.pushes[i].weight);
    EXPECT_EQ(client.early[i].position.task_id, client.pushes[i].position.task_id);
    EXPECT_EQ(client.early[i].position.examples, client.pushes[i].position.examples);
    // The loss of a frame is not known before its end.
    EXPECT_EQ(client.early[i].position.weight_sum + client.pushes[i].weight,
              client.pushes[i].position.weight_sum);
    EXPECT_TRUE(client.early[i].sparse.empty());
    ASSERT_EQ(client.early[i].dense.size(), 1u);
    EXPECT_EQ(client.early[i].dense[0].values[0], 1.0f);
    EXPECT_EQ(client.pushes[i].dense[0].values, nullptr);
  }

  // With clipping by global norm, a gradient is final only at the end of the step.
  spec_.mutable_config()->mutable_optimizers()->set_clip_global_norm(1);
  AsyncTrainer clipped(context_);
  Train(&clipped, {3});
  EXPECT_EQ(client.early.size(), 2u);
  EXPECT_NE(client.pushes[2].dense[0].values, nullptr);

  // A small gradient goes with the rest of the push.
  spec_.mutable_config()->mutable_optimizers()->clear_clip_global_norm();
  context_.model = &model_;
  context_.client = &client_;
  AsyncTrainer small(context_);
  Train(&small, {3});
  EXPECT_TRUE(client_.early.empty());
  EXPECT_NE(client_.pushes[0].dense[0].values, nullptr);
}

// Two sparse tables of dims 1 and 3 (TwoTablesModel).
class TwoTablesTrainersTest : public TrainersTest {
 protected:
  TwoTablesTrainersTest() {
    context_.model = &two_model_;
    context_.dense = &two_dense_;
    context_.client = &two_client_;
    context_.net = &two_net_;
  }
  // A batch has an example with these keys in its three slots, or none.
  void TrainKeys(Trainer* trainer, const std::vector<std::vector<std::vector<uint64_t>>>& batches) {
    BatchQueue queue(batches.size() + 1);
    for (const auto& by_slot : batches) {
      auto prepared = std::make_shared<PreparedBatch>();
      prepared->batch.Reset(0, 3);
      if (!by_slot.empty()) AppendKeys(by_slot, &prepared->batch);
      keys_.Find(context_, prepared.get());
      queue.Push(prepared);
    }
    queue.Close(absl::OkStatus());
    EpochPlan plan;
    plan.task_trained = [](uint64_t, uint64_t) {};
    status_ = trainer->Train(plan, &queue);
  }
  // The values of a push, by key.
  static std::map<uint64_t, std::vector<float>> Values(const PushRequest::Sparse& sparse,
                                                       size_t dim) {
    std::map<uint64_t, std::vector<float>> values;
    for (size_t i = 0; i < sparse.keys->keys.size(); ++i) {
      const float* const row = sparse.values + i * dim;
      values[sparse.keys->keys[i]].assign(row, row + dim);
    }
    return values;
  }

  TwoTablesModel two_model_;
  PserverDenseTables two_dense_{&two_model_};
  FakeClient two_client_{two_model_, 1.0f};
  OnesNet two_net_{{1, kWideDim}};
  BatchKeys keys_;
};

TEST_F(TwoTablesTrainersTest, AStepSeesTheRowsOfEachTableAndPushesTheirGradients) {
  two_client_.rows = {{1, 10}, {2, 20}};
  two_client_.more_rows[2] = {{1, 100}, {3, 300}};
  for (const bool sync : {true, false}) {
    SCOPED_TRACE(sync);
    two_client_.pushes.clear();
    two_net_.seen_tables.clear();
    SyncTrainer in_steps(context_);
    AsyncTrainer at_once(context_);
    Trainer* trainer = &at_once;
    if (sync) trainer = &in_steps;
    TrainKeys(trainer, {{{1}, {2, 1}, {3, 1}}, {{}, {1}, {}}});
    ASSERT_TRUE(status_.ok()) << status_;
    ASSERT_EQ(two_net_.seen_tables.size(), 2u);
    EXPECT_THAT(two_net_.seen_tables[0][0], testing::UnorderedElementsAre(10, 20));
    EXPECT_THAT(two_net_.seen_tables[0][1],
                testing::UnorderedElementsAre(100, 100, 100, 300, 300, 300));
    EXPECT_THAT(two_net_.seen_tables[1], ElementsAre(ElementsAre(10), ElementsAre()));
    ASSERT_EQ(two_client_.pushes.size(), 2u);
    const auto& pushed = two_client_.pushes[0].sparse;
    ASSERT_EQ(pushed.size(), 2u);
    EXPECT_EQ(pushed[0].table, 0u);
    EXPECT_EQ(pushed[1].table, 2u) << "the dense table lies between them";
    EXPECT_THAT(Values(pushed[0], 1),
                ElementsAre(testing::Pair(1, ElementsAre(1)), testing::Pair(2, ElementsAre(1))));
    EXPECT_THAT(Values(pushed[1], kWideDim), ElementsAre(testing::Pair(1, ElementsAre(1, 1, 1)),
                                                         testing::Pair(3, ElementsAre(1, 1, 1))));
    EXPECT_TRUE(two_client_.pushes[1].sparse[1].keys->keys.empty());
  }
}

TEST_F(TwoTablesTrainersTest, AnEmptyPushNamesEachTableAndNoKey) {
  two_net_.overflow_steps = {1};
  SyncTrainer trainer(context_);
  TrainKeys(&trainer, {{{1}, {2}, {3}}, {{1}, {2}, {3}}, {}});
  ASSERT_TRUE(status_.ok()) << status_;
  ASSERT_EQ(two_client_.pushes.size(), 3u);
  for (const size_t i : {1, 2}) {
    const auto& sparse = two_client_.pushes[i].sparse;
    ASSERT_EQ(sparse.size(), 2u);
    for (size_t table = 0; table < 2; ++table) {
      EXPECT_EQ(sparse[table].table, 2 * table);
      EXPECT_TRUE(sparse[table].keys->keys.empty());
      EXPECT_THAT(sparse[table].keys->offsets, ElementsAre(0, 0, 0, 0, 0));
    }
  }
}

TEST_F(TwoTablesTrainersTest, EachBatchIsAnnouncedWithTheRowsOfEachTable) {
  AsyncTrainer trainer(context_);
  TrainKeys(&trainer, {{{1}, {2, 4}, {3}}, {{1}, {2}, {3, 4}}, {{1, 2}, {}, {3}}});
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(two_net_.ahead, ElementsAre(false, true, true));
}

TEST_F(TwoTablesTrainersTest, TheGlobalNormIsThatOfAllTables) {
  spec_.mutable_config()->mutable_optimizers()->set_clip_global_norm(2);
  AsyncTrainer trainer(context_);
  // Gradients of one: 2 rows of 1, 2 of 3, and 2 dense values.
  TrainKeys(&trainer, {{{1}, {2, 1}, {3}}});
  ASSERT_TRUE(status_.ok()) << status_;
  const float clipped = static_cast<float>(2 / std::sqrt(10.0));
  const PushRequest& push = two_client_.pushes[0];
  for (const auto& [key, row] : Values(push.sparse[0], 1)) EXPECT_THAT(row, Each(clipped)) << key;
  for (const auto& [key, row] : Values(push.sparse[1], kWideDim))
    EXPECT_THAT(row, Each(clipped)) << key;
  EXPECT_EQ(push.dense[0].values[1], clipped);
}

TEST_F(TrainersTest, CancelEndsTraining) {
  cancelled_ = true;
  AsyncTrainer trainer(context_);
  Train(&trainer, {1});
  EXPECT_TRUE(absl::IsCancelled(status_));
}

TEST(BatchQueueTest, PeekDoesNotRemoveTheItem) {
  BatchQueue queue(4);
  EXPECT_EQ(queue.Peek(), nullptr);
  auto first = std::make_shared<PreparedBatch>();
  queue.Push(first);
  queue.Push(std::make_shared<PreparedBatch>());
  EXPECT_EQ(queue.Peek(), first);
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(*queue.Pop(), first);
  EXPECT_NE(queue.Peek(), first);
  queue.Cancel();
  EXPECT_EQ(queue.Peek(), nullptr);
}

TEST(BatchQueueTest, KeepsOrderThenReturnsTheStatusOfTheProducer) {
  BatchQueue queue(4);
  auto first = std::make_shared<PreparedBatch>();
  EXPECT_TRUE(queue.Push(first));
  queue.Close(absl::DataLossError("broken file"));
  EXPECT_EQ(*queue.Pop(), first);
  EXPECT_EQ(queue.Pop().status().code(), absl::StatusCode::kDataLoss);
  queue.Cancel();
  EXPECT_FALSE(queue.Push(first));
  EXPECT_TRUE(absl::IsCancelled(queue.Pop().status()));
}

TEST_F(TrainersTest, AsyncPushesSayHowFarTheRankIs) {
  TrainReport so_far;
  so_far.set_examples(100);
  so_far.set_steps(20);
  so_far.set_weight_sum(90);
  stats_.BeginEpoch(1);
  stats_.StartFrom(so_far, 20, 0);
  net_.overflow_steps = {1};
  AsyncTrainer trainer(context_);
  Train(&trainer, {3, 2, 4}, /*first_step=*/0, /*epoch=*/1);
  ASSERT_TRUE(status_.ok()) << status_;
  ASSERT_EQ(client_.pushes.size(), 3u);
  const uint64_t examples[] = {103, 105, 109};
  const double weights[] = {93, 93, 97};  // the second step is skipped
  for (size_t i = 0; i < 3; ++i) {
    const TrainPosition& at = client_.pushes[i].position;
    EXPECT_EQ(at.task_id, i + 1);
    EXPECT_EQ(at.epoch, 1u);
    EXPECT_EQ(at.examples, examples[i]);
    EXPECT_EQ(at.steps, 21 + i);
    EXPECT_EQ(at.weight_sum, weights[i]);
  }
  const TrainPosition totals = stats_.Position();
  EXPECT_EQ(totals.examples, 109u);
  EXPECT_EQ(totals.weight_sum, 97);
}

TEST_F(TrainersTest, SyncPushesHaveNoPosition) {
  context_.mode = Mode::kSync;
  SyncTrainer trainer(context_);
  Train(&trainer, {3});
  ASSERT_TRUE(status_.ok()) << status_;
  Push push;
  SetPosition(client_.pushes[0].position, &push);
  EXPECT_EQ(push.ByteSizeLong(), 0u);
}

TEST_F(TrainersTest, AsyncAnswersACheckpointBetweenSteps) {
  WorkerCuts cuts("job-1", 1, 5, nullptr);
  context_.cuts = &cuts;
  stats_.BeginEpoch(0);
  WorkerStats::TaskData data;
  data.bad.count = 2;
  data.dropped = 3;
  for (const uint64_t task : {8, 9}) stats_.AddTask(task, data);
  stats_.TaskAcknowledged(8);
  AsyncTrainer trainer(context_);
  // The rank is asked in its first step, and trains its second one without waiting.
  net_.on_step = [&] {
    WorkerCheckpoint wanted;
    wanted.set_number(1);
    cuts.SetWanted(wanted);
  };
  Train(&trainer, {3, 2});
  ASSERT_TRUE(status_.ok()) << status_;
  PollRequest report;
  cuts.AddTo(&report);
  EXPECT_EQ(report.cut().checkpoint(), 1u);
  EXPECT_EQ(report.cut().step(), 1u) << "acknowledged tasks";
  EXPECT_EQ(report.cut().state().net_state(), "1 steps");
  const TrainReport& train = report.cut().state().train();
  EXPECT_EQ(train.bad_lines(), 2u) << "of acknowledged tasks only";
  EXPECT_EQ(train.dropped(), 3u);
  EXPECT_EQ(stats_.EpochReport().bad_lines(), 4u);
  EXPECT_EQ(client_.pushes.size(), 2u);
}

// The batches before it are on every pserver when their cuts begin.
TEST_F(TrainersTest, AsyncAddsTheNewestStateOfTheSourceThatIsNotAheadOfAcknowledgedBatches) {
  MemoryEnv env;
  StatesOfSource source;
  context_.env = &env;
  context_.own_data = &source;
  for (const bool folder : {false, true}) {
    for (const uint64_t batches : {1, 2, 3, 4}) source.states()->Keep({0, batches, "state"});
    WorkerCuts cuts("job-1", 1, 5, nullptr);
    context_.cuts = &cuts;
    stats_.BeginEpoch(0);
    AsyncTrainer trainer(context_);
    int steps = 0;
    net_.on_step = [&] {
      WorkerCheckpoint wanted;
      wanted.set_number(1);
      if (folder) wanted.set_directory("/c/step-5");
      wanted.set_save_id("5-1");
      if (++steps == 3) cuts.SetWanted(wanted);
    };
    Train(&trainer, {3, 2, 4, 1, 1});
    ASSERT_TRUE(status_.ok()) << status_;
    PollRequest report;
    cuts.AddTo(&report);
    EXPECT_EQ(report.cut().checkpoint(), 1u);
    EXPECT_EQ(report.cut().error(), "");
    ASSERT_EQ(report.cut().state().has_file(), folder);
    if (!folder) continue;
    const auto state = ReadSourceState(&env, "/c/step-5", report.cut().state().file());
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->batches, 2u) << "the push of the third one is under way";
  }
}

}  // namespace
}  // namespace sluice
