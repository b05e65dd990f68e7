#include "worker/geo_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/fakes.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class GeoTrainerTest : public ::testing::Test {
 protected:
  void Init(int k_steps, float scale = 0.5f, uint64_t cache_rows = 1000) {
    JobConfig* config = spec_.mutable_config();
    config->mutable_strategy()->set_a_sync(true);
    config->mutable_strategy()->mutable_a_sync_configs()->set_k_steps(k_steps);
    config->mutable_strategy()->mutable_a_sync_configs()->set_geo_cache_rows(cache_rows);
    config->mutable_train()->set_batch_size(4);
    spec_.set_worker_num(2);
    client_ = std::make_unique<FakeClient>(model_, scale);
    context_.spec = &spec_;
    context_.mode = Mode::kGeo;
    context_.model = &model_;
    context_.net = &net_;
    context_.client = client_.get();
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
    trainer_ = std::make_unique<GeoTrainer>(context_);
  }

  std::shared_ptr<PreparedBatch> Batch(std::vector<uint64_t> keys, uint64_t ends_task = 0) {
    auto prepared = std::make_shared<PreparedBatch>();
    prepared->batch.n = 1;
    prepared->batch.keys = keys;
    prepared->row_index.resize(keys.size());
    dedup_.Run(*client_->tables()[0], keys.data(), keys.size(), &prepared->keys,
               prepared->row_index.data());
    prepared->batch.task_id = ends_task;
    prepared->last_of_task = ends_task != 0;
    prepared->task_examples = 1;
    return prepared;
  }

  void Train(const std::vector<std::shared_ptr<PreparedBatch>>& batches) {
    BatchQueue queue(batches.size() + 1);
    for (const auto& batch : batches) queue.Push(batch);
    queue.Close(absl::OkStatus());
    EpochPlan plan;
    plan.task_trained = [this](uint64_t task, uint64_t) { trained_.push_back(task); };
    ASSERT_TRUE(trainer_->Train(plan, &queue).ok());
  }

  FakeModel model_;
  OnesNet net_;
  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<FakeClient> client_;
  JobContext context_;
  std::unique_ptr<GeoTrainer> trainer_;
  KeyDeduplicator dedup_;
  std::vector<uint64_t> trained_;
};

TEST_F(GeoTrainerTest, SendsExactlyEveryKStepsAndFlushesTheTail) {
  Init(3);
  std::vector<std::shared_ptr<PreparedBatch>> batches;
  for (int i = 0; i < 8; ++i) batches.push_back(Batch({7}));
  Train(batches);
  // 8 steps: exchanges after 3, 6 and the tail of 2.
  ASSERT_EQ(client_->sent_rows.size(), 3u);
  EXPECT_THAT(client_->sent_rows[0], ElementsAre(Pair(7, -3.0f)));
  EXPECT_THAT(client_->sent_rows[1], ElementsAre(Pair(7, -3.0f)));
  EXPECT_THAT(client_->sent_rows[2], ElementsAre(Pair(7, -2.0f)));
  EXPECT_THAT(client_->sent_dense[2], ElementsAre(-2.0f, -2.0f));
  // The server holds exactly the merged deltas: 0.5 x (-3 - 3 - 2).
  EXPECT_EQ(client_->rows[7], -4.0f);
  EXPECT_THAT(client_->dense, ElementsAre(-4.0f, -4.0f));
}

TEST_F(GeoTrainerTest, AStepThatOverflowsMovesNothingButCounts) {
  Init(2);
  net_.overflow_steps = {1};
  Train({Batch({1}), Batch({2}), Batch({3}), Batch({3})});
  ASSERT_EQ(client_->sent_rows.size(), 2u);
  EXPECT_EQ(client_->sent_rows[0][1], -1.0f);
  EXPECT_EQ(client_->sent_rows[0][2], 0.0f);  // not touched, or by nothing
  EXPECT_THAT(client_->sent_rows[1], ElementsAre(Pair(3, -2.0f)));
  EXPECT_EQ(stats_.skipped_steps(), 1u);
}

TEST_F(GeoTrainerTest, AMultipleOfKStepsLeavesNoTailAndNothingIsSentTwice) {
  Init(2);
  Train({Batch({1}), Batch({2}), Batch({3}), Batch({3})});
  ASSERT_EQ(client_->sent_rows.size(), 2u);
  EXPECT_THAT(client_->sent_rows[0], ElementsAre(Pair(1, -1.0f), Pair(2, -1.0f)));
  EXPECT_THAT(client_->sent_rows[1], ElementsAre(Pair(3, -2.0f)));
}

TEST_F(GeoTrainerTest, ContinuesFromTheServersValueAfterAnExchange) {
  Init(1);
  client_->rows[5] = 10.0f;
  Train({Batch({5}), Batch({5})});
  // Step 1 sees 10, sends -1, server 9.5; step 2 sees 9.5, sends -1, server 9.
  ASSERT_EQ(net_.seen_rows.size(), 2u);
  EXPECT_THAT(net_.seen_rows[0], ElementsAre(10.0f));
  EXPECT_THAT(net_.seen_rows[1], ElementsAre(9.5f));
  EXPECT_EQ(client_->rows[5], 9.0f);
}

TEST_F(GeoTrainerTest, RowsNotInTheDeltaArePulledAgainOnTheNextTouch) {
  Init(1);
  Train({Batch({1})});
  EXPECT_THAT(client_->pulled_keys, ElementsAre(1));
  Train({Batch({2})});  // after this exchange row 1 is stale
  client_->rows[1] = 100.0f;
  Train({Batch({1})});
  EXPECT_THAT(client_->pulled_keys, ElementsAre(1, 2, 1));
  EXPECT_THAT(net_.seen_rows.back(), ElementsAre(100.0f));
  Train({Batch({1})});  // just exchanged: fresh, no pull
  EXPECT_EQ(client_->pulled_keys.size(), 3u);
}

TEST_F(GeoTrainerTest, ATaskIsTrainedOnlyWhenItsExchangeIsAcknowledged) {
  Init(3);
  Train({Batch({1}, /*ends_task=*/4), Batch({1}), Batch({1}), Batch({1}, /*ends_task=*/9)});
  EXPECT_THAT(trained_, ElementsAre(4, 9));
}

TEST_F(GeoTrainerTest, TheCacheKeepsAtMostItsRowsAndEvictedRowsComeBackFromTheServer) {
  Init(1, 0.5f, /*cache_rows=*/2);
  Train({Batch({1}), Batch({2}), Batch({3}), Batch({4})});
  client_->rows[1] = 8.0f;
  Train({Batch({1})});
  EXPECT_THAT(net_.seen_rows.back(), ElementsAre(8.0f));
  EXPECT_EQ(client_->rows[1], 7.5f);
}

TEST_F(GeoTrainerTest, DenseValuesArePulledOnceBeforeTheFirstStep) {
  Init(2);
  client_->dense = {3.0f, 4.0f};
  Train({Batch({1}), Batch({1})});
  EXPECT_THAT(net_.seen_dense[0], ElementsAre(3.0f, 4.0f));
  EXPECT_THAT(net_.seen_dense[1], ElementsAre(2.0f, 3.0f));
  EXPECT_THAT(client_->dense, ElementsAre(2.0f, 3.0f));
}

TEST(GeoStoreTest, TheLearningRateFollowsTheWorkersSteps) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  *tables.Add() = SgdTable("rows", TableConfig::SPARSE, 1, 1.0f);
  *tables.Add() = SgdTable("dense", TableConfig::DENSE, 2, 1.0f);
  for (OptimizerConfig* optimizer :
       {tables[0].mutable_columns(0)->mutable_optimizer(), tables[1].mutable_optimizer()}) {
    auto* halves = optimizer->mutable_schedule()->mutable_exponential();
    halves->set_steps(1);
    halves->set_rate(0.5f);
  }
  const TableLayouts layouts = *CreateTableLayouts(tables, 1);
  GeoStore store({layouts[1].get()}, layouts[0].get(), 100);
  KeyDeduplicator dedup;
  KeySet keys;
  GeoStore::Rows found;
  const uint64_t key = 5;
  uint32_t index;
  dedup.Run(*layouts[0], &key, 1, &keys, &index);
  store.Find(keys, &found);
  const float zero = 0.0f, one[2] = {1.0f, 1.0f};
  store.Fill(&found, &zero);
  store.SetDenseBase();
  for (uint64_t step = 0; step < 3; ++step) {
    store.UpdateRows(found, one, step);
    store.UpdateDense(0, one, step);
  }
  float value;
  store.Gather(found, &value);
  EXPECT_EQ(value, -1.75f);  // 1 + 1/2 + 1/4
  EXPECT_EQ(store.dense(0)[1], -1.75f);
}

TEST(GeoStoreTest, MovesMadeAfterTheSendSurviveTheMerge) {
  FakeModel model;
  FakeClient client(model, 1.0f);
  GeoStore store({client.tables()[1].get()}, client.tables()[0].get(), 100);
  KeyDeduplicator dedup;
  KeySet keys;
  GeoStore::Rows found;
  const uint64_t key = 5;
  uint32_t index;
  dedup.Run(*client.tables()[0], &key, 1, &keys, &index);
  store.Find(keys, &found);
  ASSERT_EQ(found.missing.keys.size(), 1u);
  const float pulled = 1.0f, one[2] = {1.0f, 1.0f};
  store.Fill(&found, &pulled);
  store.UpdateRows(found, one, 0);  // local 0
  KeySet sent;
  std::vector<float> rows;
  std::vector<std::vector<float>> dense;
  store.TakeDelta(&sent, &rows, &dense);
  ASSERT_EQ(rows[0], -1.0f);
  store.UpdateRows(found, one, 1);  // local -1, while the delta is under way
  store.UpdateDense(0, one, 1);
  store.Merge(rows, {20.0f}, dense, {{5.0f, 6.0f}});
  float value;
  store.Gather(found, &value);
  EXPECT_EQ(value, 19.0f);  // server 20, one move of -1
  EXPECT_EQ(store.dense(0)[0], 4.0f);
  store.TakeDelta(&sent, &rows, &dense);
  EXPECT_EQ(rows[0], -1.0f);  // the move, not the delta that was sent
  EXPECT_EQ(dense[0][1], -1.0f);
}

}  // namespace
}  // namespace sluice
