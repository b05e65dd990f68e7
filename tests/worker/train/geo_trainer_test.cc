#include "worker/train/geo_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/key_set.h"
#include "tests/worker/fakes.h"
#include "worker/data/batch_keys.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// OnesNet as a network on a device, where Geo's values and its gradients of one stay.
class OnesDeviceNet : public OnesNet {
 public:
  using OnesNet::OnesNet;
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override {
    if (input.geo == nullptr) return absl::InternalError("the values are on the device");
    EXPECT_TRUE(input.dense.empty() && gradients->dense.empty() && gradients->rows.empty());
    NetInput here = input;
    here.dense = {host_->dense(0)};
    std::vector<std::vector<float>> values(input.rows.size());
    rows_.resize(input.rows.size());
    for (size_t i = 0; i < input.rows.size(); ++i) {
      const RowsInput& rows = input.rows[i];
      EXPECT_EQ(rows.values, nullptr);
      values[i].resize(rows.n * dims[i]);
      host_->GatherRows(i, {rows.slots, rows.n}, values[i].data());
      here.rows[i].values = values[i].data();
      rows_[i].assign(values[i].size(), 0.0f);
      gradients->rows.push_back(rows_[i].data());
    }
    gradients->dense = {dense_.data()};
    return OnesNet::TrainStep(here, seed, epoch, gradients);
  }
  absl::StatusOr<std::unique_ptr<GeoOptimizer>> MakeGeoOptimizer(
      const std::vector<const TableLayout*>& dense, const std::vector<const TableLayout*>& sparse,
      double clip_global_norm) override {
    EXPECT_EQ(clip_global_norm, 7.0);
    auto values = std::make_unique<Values>(this, dense, sparse);
    host_ = values.get();
    return values;
  }

 private:
  class Values : public HostGeoOptimizer {
   public:
    Values(OnesDeviceNet* net, const std::vector<const TableLayout*>& dense,
           const std::vector<const TableLayout*>& sparse)
        : HostGeoOptimizer(dense, sparse), net_(net) {}
    absl::Status Update(const GeoUpdate& update) override {
      EXPECT_TRUE(update.dense.empty());
      GeoUpdate with = update;
      for (size_t i = 0; i < with.rows.size(); ++i) {
        EXPECT_EQ(with.rows[i].gradients, nullptr);
        with.rows[i].gradients = net_->rows_[i].data();
      }
      with.dense = {net_->dense_.data()};
      return HostGeoOptimizer::Update(with);
    }

   private:
    OnesDeviceNet* const net_;
  };
  HostGeoOptimizer* host_ = nullptr;
  std::vector<std::vector<float>> rows_;  // gradients by sparse table
  std::vector<float> dense_ = {0, 0};
};

// Runs with values in the worker's memory and with values on a device.
class GeoTrainerTest : public ::testing::TestWithParam<bool> {
 protected:
  void Init(int k_steps, float scale = 0.5f, uint64_t cache_rows = 1000) {
    JobConfig* config = spec_.mutable_config();
    config->mutable_strategy()->set_a_sync(true);
    config->mutable_strategy()->mutable_a_sync_configs()->set_k_steps(k_steps);
    config->mutable_strategy()->mutable_a_sync_configs()->set_geo_cache_rows(cache_rows);
    config->mutable_train()->set_batch_size(4);
    config->mutable_optimizers()->set_clip_global_norm(7);
    spec_.set_worker_num(2);
    client_ = std::make_unique<FakeClient>(model_, scale);
    context_.spec = &spec_;
    context_.mode = Mode::kGeo;
    context_.model = &model_;
    context_.net = net_.get();
    context_.client = client_.get();
    context_.dense = &dense_;
    context_.env = Env::Real();
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
    trainer_ = std::make_unique<GeoTrainer>(context_);
  }

  std::shared_ptr<PreparedBatch> Batch(std::vector<uint64_t> keys, uint64_t ends_task = 0) {
    auto prepared = std::make_shared<PreparedBatch>();
    prepared->batch.n = 1;
    prepared->batch.keys = keys;
    prepared->row_index.resize(keys.size());
    prepared->keys.resize(1);
    dedup_.Run(*client_->tables()[0], keys.data(), keys.size(), &prepared->keys[0],
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
  PserverDenseTables dense_{&model_};
  std::unique_ptr<OnesNet> net_ =
      GetParam() ? std::make_unique<OnesDeviceNet>() : std::make_unique<OnesNet>();
  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<FakeClient> client_;
  JobContext context_;
  std::unique_ptr<GeoTrainer> trainer_;
  KeyDeduplicator dedup_;
  std::vector<uint64_t> trained_;
};

TEST_P(GeoTrainerTest, SendsExactlyEveryKStepsAndFlushesTheTail) {
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

TEST_P(GeoTrainerTest, OverflowedStepMovesNothingButCounts) {
  Init(2);
  net_->overflow_steps = {1};
  Train({Batch({1}), Batch({2}), Batch({3}), Batch({3})});
  ASSERT_EQ(client_->sent_rows.size(), 2u);
  EXPECT_EQ(client_->sent_rows[0][1], -1.0f);
  EXPECT_EQ(client_->sent_rows[0][2], 0.0f);  // not moved
  EXPECT_THAT(client_->sent_rows[1], ElementsAre(Pair(3, -2.0f)));
  EXPECT_EQ(stats_.skipped_steps(), 1u);
}

// Holds across exchanges and merges too.
TEST_P(GeoTrainerTest, EachBatchIsAnnouncedBeforeThePreviousStepRuns) {
  for (const int k : {1, 2, 8}) {
    net_->ahead.clear();
    Init(k);
    std::vector<std::shared_ptr<PreparedBatch>> batches;
    for (uint64_t i = 0; i < 19; ++i) batches.push_back(Batch({i % 3, i % 5}));
    Train(batches);
    ASSERT_EQ(net_->ahead.size(), 19u);
    EXPECT_EQ(std::count(net_->ahead.begin() + 1, net_->ahead.end(), true), 18) << k;
  }
}

TEST_P(GeoTrainerTest, MultipleOfKStepsLeavesNoTailAndSendsNothingTwice) {
  Init(2);
  Train({Batch({1}), Batch({2}), Batch({3}), Batch({3})});
  ASSERT_EQ(client_->sent_rows.size(), 2u);
  EXPECT_THAT(client_->sent_rows[0], ElementsAre(Pair(1, -1.0f), Pair(2, -1.0f)));
  EXPECT_THAT(client_->sent_rows[1], ElementsAre(Pair(3, -2.0f)));
}

TEST_P(GeoTrainerTest, ContinuesFromTheServersValueAfterAnExchange) {
  Init(1);
  client_->rows[5] = 10.0f;
  Train({Batch({5}), Batch({5})});
  // Step 1 sees 10, sends -1, server 9.5; step 2 sees 9.5, sends -1, server 9.
  ASSERT_EQ(net_->seen_rows.size(), 2u);
  EXPECT_THAT(net_->seen_rows[0], ElementsAre(10.0f));
  EXPECT_THAT(net_->seen_rows[1], ElementsAre(9.5f));
  EXPECT_EQ(client_->rows[5], 9.0f);
}

TEST_P(GeoTrainerTest, RowsNotInTheDeltaArePulledAgainOnTheNextTouch) {
  Init(1);
  Train({Batch({1})});
  EXPECT_THAT(client_->pulled_keys, ElementsAre(1));
  Train({Batch({2})});  // after this exchange row 1 is stale
  client_->rows[1] = 100.0f;
  Train({Batch({1})});
  EXPECT_THAT(client_->pulled_keys, ElementsAre(1, 2, 1));
  EXPECT_THAT(net_->seen_rows.back(), ElementsAre(100.0f));
  Train({Batch({1})});  // just exchanged: fresh, no pull
  EXPECT_EQ(client_->pulled_keys.size(), 3u);
}

TEST_P(GeoTrainerTest, TaskIsTrainedOnlyWhenItsExchangeIsAcknowledged) {
  Init(3);
  Train({Batch({1}, /*ends_task=*/4), Batch({1}), Batch({1}), Batch({1}, /*ends_task=*/9)});
  EXPECT_THAT(trained_, ElementsAre(4, 9));
}

TEST_P(GeoTrainerTest, StoreEvictsRowsBeyondItsLimitAndPullsThemAgain) {
  Init(1, 0.5f, /*cache_rows=*/2);
  Train({Batch({1}), Batch({2}), Batch({3}), Batch({4})});
  client_->rows[1] = 8.0f;
  Train({Batch({1})});
  EXPECT_THAT(net_->seen_rows.back(), ElementsAre(8.0f));
  EXPECT_EQ(client_->rows[1], 7.5f);
}

std::vector<float> Down(float from, int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(from - static_cast<float>(i));
  return values;
}

// Other workers add 100 before each exchange, and the merge scale is 1/2. So a merge moves the
// values by 100 plus half of the delta. It comes k / 8 steps after the send and keeps the moves
// made since.
TEST_P(GeoTrainerTest, MergesAnExchangeAnEighthOfAnIntervalAfterItsSend) {
  struct Case {
    int k;
    std::vector<std::vector<float>> seen;  // between merges
    float at_the_end;                      // on the server
    uint64_t oldest;
  };
  const std::vector<Case> cases = {
      // Deltas -8, -8 and a tail of -4: the server has 96, 192, 290.
      {8, {Down(0, 9), Down(95, 8), Down(191, 3)}, 290, 8},
      // -16, -16, -4: 92, 184, 282.
      {16, {Down(0, 18), Down(90, 16), Down(182, 2)}, 282, 17},
      // -17, -17, -4: 91.5, 183, 281.
      {17, {Down(0, 19), Down(89.5, 17), Down(181, 2)}, 281, 18},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.k);
    net_->seen_rows.clear();
    net_->seen_dense.clear();
    Init(c.k);
    WorkerStats stats("job", 0, 1000, nullptr);
    context_.stats = &stats;
    client_->others = 100;
    client_->rows[7] = 0;
    Train(std::vector<std::shared_ptr<PreparedBatch>>(2 * c.k + 4, Batch({7})));
    std::vector<float> expected;
    for (const std::vector<float>& part : c.seen)
      expected.insert(expected.end(), part.begin(), part.end());
    std::vector<float> rows, dense;
    for (const std::vector<float>& step : net_->seen_rows) rows.push_back(step[0]);
    for (const std::vector<float>& step : net_->seen_dense) dense.push_back(step[1]);
    EXPECT_EQ(rows, expected);
    EXPECT_EQ(dense, expected);
    EXPECT_EQ(client_->rows[7], c.at_the_end);
    EXPECT_EQ(client_->dense[0], c.at_the_end);
    EXPECT_THAT(client_->pulled_keys, ElementsAre(7));
    const HotRowUse use = stats.Progress().hot_rows();
    EXPECT_EQ(use.staleness_max(), c.oldest);
    EXPECT_EQ(use.hits(), 2u * c.k + 3);
    EXPECT_EQ(use.misses(), 1u);
  }
}

TEST_P(GeoTrainerTest, TailIsSentAfterTheMergeOfAnOpenExchange) {
  Init(16);
  client_->others = 100;
  client_->rows[7] = 0;
  std::vector<std::shared_ptr<PreparedBatch>> batches(15, Batch({7}));
  batches.push_back(Batch({7}, /*ends_task=*/4));
  batches.push_back(Batch({7}, /*ends_task=*/9));  // the tail
  Train(batches);
  ASSERT_EQ(client_->sent_rows.size(), 2u);
  EXPECT_THAT(client_->sent_rows[0], ElementsAre(Pair(7, -16.0f)));
  EXPECT_THAT(client_->sent_rows[1], ElementsAre(Pair(7, -1.0f)));
  EXPECT_THAT(client_->sent_dense[1], ElementsAre(-1.0f, -1.0f));
  EXPECT_THAT(trained_, ElementsAre(4, 9));
  EXPECT_THAT(net_->seen_rows.back(), ElementsAre(-16.0f));
  Train({Batch({7})});
  EXPECT_THAT(net_->seen_rows.back(), ElementsAre(191.5f));  // 100 - 8, 100 - 1 / 2
  EXPECT_THAT(net_->seen_dense.back(), ElementsAre(191.5f, 191.5f));
}

TEST_P(GeoTrainerTest, RowPulledAheadOfASendIsSentWithTheNextDelta) {
  Init(8);
  client_->others = 100;
  client_->rows = {{7, 0}, {50, 1000}, {51, 2000}};
  std::vector<std::shared_ptr<PreparedBatch>> batches(8, Batch({7}));
  batches.push_back(Batch({50}));  // found before the send, trained between send and merge
  batches.push_back(Batch({51}));  // found after the merge
  batches.push_back(Batch({50}));  // moved: fresh
  Train(batches);
  ASSERT_EQ(net_->seen_rows.size(), 11u);
  EXPECT_THAT(net_->seen_rows[8], ElementsAre(1000.0f));
  EXPECT_THAT(net_->seen_rows[9], ElementsAre(2100.0f));
  EXPECT_THAT(net_->seen_rows[10], ElementsAre(999.0f));
  EXPECT_THAT(client_->pulled_keys, ElementsAre(7, 50, 51));
  ASSERT_EQ(client_->sent_rows.size(), 2u);
  EXPECT_THAT(client_->sent_rows[0], ElementsAre(Pair(7, -8.0f)));
  EXPECT_THAT(client_->sent_rows[1], ElementsAre(Pair(50, -2.0f), Pair(51, -1.0f)));
  EXPECT_EQ(client_->rows[50], 1199.0f);
}

TEST_P(GeoTrainerTest, RowsMadeStaleByAMergeArePulledForTheNextStep) {
  Init(8);
  client_->others = 100;
  client_->rows = {{7, 0}, {51, 0}};
  std::vector<std::shared_ptr<PreparedBatch>> batches(18, Batch({7}));
  // The row is in the first delta; it is fresh until the merge after step 16, before step 17.
  batches[0] = batches[17] = Batch({51});
  Train(batches);
  EXPECT_THAT(net_->seen_rows[17], ElementsAre(199.5f));  // -1 / 2, twice 100
  EXPECT_THAT(client_->pulled_keys, ElementsAre(51, 7, 51));
}

TEST_P(GeoTrainerTest, RowFirstMovedBetweenASendAndItsMergeIsTheOldest) {
  Init(8);
  std::vector<std::shared_ptr<PreparedBatch>> batches(25, Batch({7}));
  // The row is part of the send after 8 steps. It is next used in step 16, between the next send
  // and its merge, and last in step 24, right before the merge of the exchange that includes it.
  batches[0] = batches[16] = batches[24] = Batch({51});
  Train(batches);
  EXPECT_THAT(client_->pulled_keys, ElementsAre(51, 7));
  EXPECT_EQ(stats_.Progress().hot_rows().staleness_max(), 16u);  // 2 k + k / 8 - 1
}

TEST_P(GeoTrainerTest, EveryBatchBeforeTheFirstSendIsPulledOneStepAhead) {
  Init(8);
  Train({Batch({1}), Batch({2}), Batch({3}), Batch({4})});
  const HotRowUse use = stats_.Progress().hot_rows();
  EXPECT_EQ(use.misses(), 4u);
  EXPECT_EQ(use.staleness_sum(), 3u);  // nothing is trained before the first one
  EXPECT_EQ(use.staleness_max(), 1u);
}

TEST_P(GeoTrainerTest, PullsAndExchangesReuseTheirBuffers) {
  Init(2, 0.5f, /*cache_rows=*/1);
  std::vector<std::shared_ptr<PreparedBatch>> batches;
  for (uint64_t key = 1; key <= 20; ++key) batches.push_back(Batch({key}));
  Train(batches);
  EXPECT_EQ(client_->pulled_keys.size(), 20u);
  EXPECT_EQ(client_->buffers.size(), 3u);  // two batches, one delta
}

TEST_P(GeoTrainerTest, DenseValuesArePulledOnceBeforeTheFirstStep) {
  Init(2);
  client_->dense = {3.0f, 4.0f};
  Train({Batch({1}), Batch({1})});
  EXPECT_THAT(net_->seen_dense[0], ElementsAre(3.0f, 4.0f));
  EXPECT_THAT(net_->seen_dense[1], ElementsAre(2.0f, 3.0f));
  EXPECT_THAT(client_->dense, ElementsAre(2.0f, 3.0f));
}

// A program with a frozen parameter of five elements.
class GeoFrozenTest : public GeoTrainerTest {
 protected:
  void Init(int k_steps) {
    GeoTrainerTest::Init(k_steps);
    spec_.mutable_config()->mutable_model()->mutable_program();
    client_ = std::make_unique<FakeClient>(frozen_model_, 0.5f);
    context_.model = &frozen_model_;
    context_.client = client_.get();
    trainer_ = std::make_unique<GeoTrainer>(context_);
  }

  static TableConfig Frozen() {
    TableConfig table = SgdTable("frozen", TableConfig::DENSE, 5, 0.0f);
    table.set_update_at(TableConfig::WORKER);
    return table;
  }

  const TablesModel frozen_model_{{SgdTable("rows", TableConfig::SPARSE, 1, 1.0f),
                                   SgdTable("dense", TableConfig::DENSE, 2, 1.0f), Frozen()}};
};

TEST_P(GeoFrozenTest, AnExchangeHasNoFrozenParameter) {
  Init(2);
  Train({Batch({1}), Batch({1}), Batch({1}), Batch({1})});
  ASSERT_EQ(client_->sent_rows.size(), 2u);
  EXPECT_EQ(client_->exchanged_floats, 2 * (2 + 2));
}

INSTANTIATE_TEST_SUITE_P(Values, GeoFrozenTest, ::testing::Values(false));

// Two sparse tables of dims 1 and 3 (TwoTablesModel). The id of the second one is 2.
class GeoTwoTablesTest : public GeoTrainerTest {
 protected:
  void Init(int k_steps, uint64_t cache_rows = 1000) {
    GeoTrainerTest::Init(k_steps, 0.5f, cache_rows);
    client_ = std::make_unique<FakeClient>(two_model_, 0.5f);
    context_.model = &two_model_;
    context_.client = client_.get();
    context_.dense = &two_dense_;
    const std::vector<size_t> dims = {1, kWideDim};
    net_ = GetParam() ? std::make_unique<OnesDeviceNet>(dims) : std::make_unique<OnesNet>(dims);
    context_.net = net_.get();
    trainer_ = std::make_unique<GeoTrainer>(context_);
  }
  std::shared_ptr<PreparedBatch> Batch(const std::vector<uint64_t>& rows,
                                       const std::vector<uint64_t>& wide) {
    auto prepared = std::make_shared<PreparedBatch>();
    AppendKeys({wide, rows, {}}, &prepared->batch);
    keys_.Find(context_, prepared.get());
    return prepared;
  }

  TwoTablesModel two_model_;
  PserverDenseTables two_dense_{&two_model_};
  BatchKeys keys_;
};

TEST_P(GeoTwoTablesTest, EachTablePullsAndExchangesItsOwnRows) {
  Init(2);
  client_->rows = {{7, 10}, {8, 20}};
  client_->more_rows[2] = {{7, 100}, {9, 300}};
  Train({Batch({7, 8}, {7}), Batch({7}, {9}), Batch({8}, {7, 9})});
  EXPECT_THAT(client_->pulled_keys, testing::UnorderedElementsAre(7, 8));
  EXPECT_THAT(client_->more_pulled_keys[2], ElementsAre(7, 9));
  ASSERT_EQ(net_->seen_tables.size(), 3u);
  EXPECT_THAT(net_->seen_tables[0][0], testing::UnorderedElementsAre(10, 20));
  EXPECT_THAT(net_->seen_tables[0][1], ElementsAre(100, 100, 100));
  EXPECT_THAT(net_->seen_tables[1], ElementsAre(ElementsAre(9), ElementsAre(300, 300, 300)));
  // The first exchange moves row 7 by half of -2, the others by half of -1.
  EXPECT_THAT(net_->seen_tables[2][0], ElementsAre(19.5f));
  EXPECT_THAT(net_->seen_tables[2][1],
              testing::UnorderedElementsAre(99.5f, 99.5f, 99.5f, 299.5f, 299.5f, 299.5f));
  ASSERT_EQ(client_->sent_rows.size(), 2u);
  EXPECT_THAT(client_->sent_rows[0], ElementsAre(Pair(7, -2.0f), Pair(8, -1.0f)));
  EXPECT_THAT(client_->more_sent_rows[0][2], ElementsAre(Pair(7, -1.0f), Pair(9, -1.0f)));
  EXPECT_THAT(client_->sent_rows[1], ElementsAre(Pair(8, -1.0f)));
  EXPECT_THAT(client_->more_sent_rows[1][2], ElementsAre(Pair(7, -1.0f), Pair(9, -1.0f)));
  EXPECT_THAT(client_->rows, ElementsAre(Pair(7, 9.0f), Pair(8, 19.0f)));
  EXPECT_THAT(client_->more_rows[2], ElementsAre(Pair(7, 99.0f), Pair(9, 299.0f)));
  const HotRowUse use = stats_.Progress().hot_rows();
  EXPECT_EQ(use.hits() + use.misses(), 8u);
  EXPECT_EQ(use.misses(), 4u);
}

TEST_P(GeoTwoTablesTest, ATableWithoutMissingRowsIsNotPulled) {
  Init(8);
  Train({Batch({1}, {5}), Batch({1}, {6}), Batch({2}, {6}), Batch({}, {})});
  EXPECT_THAT(client_->pulled_keys, ElementsAre(1, 2));
  EXPECT_THAT(client_->more_pulled_keys[2], ElementsAre(5, 6));
  EXPECT_EQ(net_->seen_tables.size(), 4u);
  EXPECT_EQ(client_->pushes_before_pull.size(), 4u) << "the dense values, and three pulls of rows";
}

TEST_P(GeoTwoTablesTest, TheCacheLimitIsForEachTable) {
  Init(1, /*cache_rows=*/2);
  Train({Batch({1}, {1}), Batch({2}, {1}), Batch({3}, {1}), Batch({4}, {2})});
  client_->rows[1] = 8;
  client_->more_rows[2][1] = 9;
  client_->pulled_keys.clear();
  Train({Batch({1, 4}, {2})});
  EXPECT_THAT(client_->pulled_keys, ElementsAre(1)) << "it was evicted";
  EXPECT_EQ(client_->more_pulled_keys[2].size(), 2u) << "row 2 is part of the last exchange";
}

INSTANTIATE_TEST_SUITE_P(Values, GeoTwoTablesTest, ::testing::Bool());

INSTANTIATE_TEST_SUITE_P(Values, GeoTrainerTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "OnADevice" : "InMemory"; });

// ------------------------------------------------------------------------------------ checkpoints

constexpr char kGeoTrainerSaveId[] = "0123456789abcdef";

std::string BytesOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

class GeoCheckpointTest : public GeoTrainerTest {
 protected:
  GeoCheckpointTest()
      : dir_(absl::StrCat(testing::TempDir(), "/geo_trainer_test.", getpid())),
        cuts_("job-1", 3, 5, [this] { Reported(); }) {
    std::filesystem::remove_all(dir_);
  }
  ~GeoCheckpointTest() override { std::filesystem::remove_all(dir_); }

  void Init(int k_steps) {
    GeoTrainerTest::Init(k_steps);
    context_.rank = 3;
    context_.cuts = &cuts_;
    client_->others = 100;
    client_->rows[7] = 0;
  }
  void Ask(uint64_t number, bool released = false, const std::string& folder = "/step-5") {
    WorkerCheckpoint wanted;
    wanted.set_number(number);
    wanted.set_park(true);
    wanted.set_released(released);
    wanted.set_directory(dir_ + folder);
    wanted.set_save_id(kGeoTrainerSaveId);
    cuts_.SetWanted(wanted);
  }
  // Called when the rank has something to report. Releases it.
  void Reported() {
    PollRequest report;
    cuts_.AddTo(&report);
    reports_.push_back(report.cut());
    if (!report.cut().parked()) return;
    sent_when_parked_ = client_->sent_rows.size();
    under_way_when_parked_ = client_->pulls_under_way();
    steps_when_parked_ = net_->seen_rows.size();
    if (releases_) Ask(report.cut().checkpoint(), /*released=*/true);
  }
  std::vector<std::shared_ptr<PreparedBatch>> Batches(int n) {
    std::vector<std::shared_ptr<PreparedBatch>> batches;
    for (int i = 0; i < n; ++i) {
      batches.push_back(Batch({7}, /*ends_task=*/0));
      batches.back()->batch.task_id = 1 + i / 4;
      batches.back()->batch.task_end = 1 + i % 4;
    }
    return batches;
  }
  void NewTrainer() {
    net_ = GetParam() ? std::make_unique<OnesDeviceNet>() : std::make_unique<OnesNet>();
    context_.net = net_.get();
    trainer_ = std::make_unique<GeoTrainer>(context_);
  }

  const std::string dir_;
  WorkerCuts cuts_;
  bool releases_ = true;
  std::vector<WorkerCut> reports_;
  size_t sent_when_parked_ = 0, under_way_when_parked_ = 0, steps_when_parked_ = 0;
};

TEST_P(GeoCheckpointTest, ARankParksRightAfterAMergeWithNothingUnsent) {
  Init(8);
  net_->on_step = [this] {
    if (net_->seen_rows.size() == 3) Ask(1);
  };
  stats_.BeginEpoch(0);
  Train(Batches(20));
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_TRUE(reports_[0].parked());
  EXPECT_EQ(reports_[0].checkpoint(), 1u);
  EXPECT_FALSE(reports_[1].parked());
  EXPECT_EQ(reports_[1].error(), "");
  EXPECT_EQ(sent_when_parked_, 1u);
  EXPECT_EQ(steps_when_parked_, 8u);
  EXPECT_EQ(under_way_when_parked_, 0u);
  const WorkerState& state = reports_[0].state();
  EXPECT_EQ(state.file().name(), absl::StrCat("worker-3.", kGeoTrainerSaveId));
  EXPECT_EQ(state.file().bytes(),
            std::filesystem::file_size(dir_ + "/step-5/" + state.file().name()));
  EXPECT_EQ(state.net_state(), "8 steps");
  // The delta names the last batch trained, which ends no task.
  EXPECT_EQ(client_->positions[0].task_id, 2u);
  EXPECT_EQ(client_->positions[0].task_end, 4u);
  EXPECT_EQ(client_->positions[0].examples, 8u);
  EXPECT_EQ(client_->positions[0].steps, 8u);
  // The merge came before the ninth step, and exchanges continue every 8 steps.
  EXPECT_THAT(net_->seen_rows[8], ElementsAre(96.0f));
  ASSERT_EQ(client_->sent_rows.size(), 3u);
  EXPECT_EQ(client_->positions[2].task_id, 5u);
  EXPECT_EQ(client_->positions[2].examples, 20u);
}

TEST_P(GeoCheckpointTest, AParkedRankTrainsOnWhenTheSchedulerIsSilent) {
  Init(8);
  releases_ = false;
  context_.scheduler_silent = [] { return true; };
  net_->on_step = [this] {
    if (net_->seen_rows.size() == 3) Ask(1);
  };
  stats_.BeginEpoch(0);
  Train(Batches(20));
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_TRUE(reports_[0].parked());
  EXPECT_EQ(steps_when_parked_, 8u);
  EXPECT_FALSE(reports_[1].parked());
  EXPECT_NE(reports_[1].error(), "") << "its part is void";
  EXPECT_EQ(client_->sent_rows.size(), 3u);
}

TEST_P(GeoCheckpointTest, ARankWithoutABatchFlushesAndParks) {
  Init(8);
  BatchQueue queue(10);
  for (const auto& batch : Batches(3)) queue.Push(batch);
  // The queue ends only after the rank has answered.
  releases_ = false;
  std::thread scheduler([&] {
    while (queue.size() > 0) std::this_thread::yield();
    Ask(1);
    for (PollRequest report; !report.cut().parked(); cuts_.AddTo(&report))
      std::this_thread::yield();
    Ask(1, /*released=*/true);
    queue.Close(absl::OkStatus());
  });
  const absl::Status status = trainer_->Train(EpochPlan(), &queue);
  scheduler.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(sent_when_parked_, 1u);
  EXPECT_THAT(client_->sent_rows[0], ElementsAre(Pair(7, -3.0f)));
  EXPECT_EQ(client_->sent_rows.size(), 1u);
}

TEST_P(GeoCheckpointTest, ARestoredRankHoldsWhatTheFileHolds) {
  Init(4);
  Train({Batch({7, 8}), Batch({9}), Batch({7})});
  Ask(1);
  trainer_->AnswerCheckpoint();
  ASSERT_EQ(reports_.size(), 1u);
  ASSERT_TRUE(reports_[0].parked());
  const std::string name = reports_[0].state().file().name();
  const std::string first = BytesOf(dir_ + "/step-5/" + name);

  NewTrainer();
  GeoRestore restore;
  restore.directory = dir_ + "/step-5";
  restore.file = reports_[0].state().file();
  ASSERT_TRUE(trainer_->Restore(restore).ok()) << trainer_->Restore(restore);
  Ask(2, false, "/step-6");
  trainer_->AnswerCheckpoint();
  EXPECT_EQ(BytesOf(dir_ + "/step-6/" + name), first);
  // Values come from the pservers: its rows are stale.
  client_->rows[9] = 500;
  client_->pulled_keys.clear();
  Train({Batch({9})});
  EXPECT_THAT(net_->seen_rows.back(), ElementsAre(500.0f));
  EXPECT_THAT(client_->pulled_keys, ElementsAre(9));
}

TEST_P(GeoCheckpointTest, TheStateOfAProgramsSourceIsBehindThatOfTheOptimizer) {
  Init(4);
  StatesOfSource source;
  context_.own_data = &source;
  for (const uint64_t batches : {2, 3, 64}) source.states()->Keep({0, batches, "state"});
  Train(Batches(3));
  Ask(1);
  trainer_->AnswerCheckpoint();
  ASSERT_EQ(reports_.size(), 1u);
  GeoRestore restore;
  restore.directory = dir_ + "/step-5";
  restore.file = reports_[0].state().file();

  StatesOfSource restored;
  context_.own_data = &restored;
  NewTrainer();
  ASSERT_TRUE(trainer_->Restore(restore).ok()) << trainer_->Restore(restore);
  const auto state = restored.states()->Before(0, 1000);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->batches, 3u) << "the newest that is not ahead of what was trained";
  EXPECT_EQ(state->bytes, "state");
}

TEST_P(GeoCheckpointTest, ADamagedFileIsRefusedAndNoneStartsAfresh) {
  Init(4);
  Train(Batches(3));
  Ask(1);
  trainer_->AnswerCheckpoint();
  GeoRestore restore;
  restore.directory = dir_ + "/step-5";
  restore.file = reports_[0].state().file();
  const std::string path = restore.directory + "/" + restore.file->name();
  std::string bytes = BytesOf(path);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  NewTrainer();
  const absl::Status damaged = trainer_->Restore(restore);
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()), testing::HasSubstr(path));
  NewTrainer();
  restore.file.reset();
  restore.step = 40;
  EXPECT_TRUE(trainer_->Restore(restore).ok());
}

TEST_P(GeoCheckpointTest, ARankThatCannotWriteSaysSoAndKeepsTraining) {
  Init(4);
  std::filesystem::create_directories(dir_);
  std::ofstream(dir_ + "/step-5") << "in the way";
  net_->on_step = [this] {
    if (net_->seen_rows.size() == 1) Ask(1);
  };
  Train(Batches(9));
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_FALSE(reports_[0].parked());
  EXPECT_THAT(reports_[0].error(), testing::HasSubstr("step-5"));
  EXPECT_EQ(client_->sent_rows.size(), 3u);
}

class GeoTwoTablesCheckpointTest : public GeoTwoTablesTest {
 protected:
  GeoTwoTablesCheckpointTest()
      : dir_(absl::StrCat(testing::TempDir(), "/geo_trainer_two_tables.", getpid())) {
    std::filesystem::remove_all(dir_);
  }
  ~GeoTwoTablesCheckpointTest() override { std::filesystem::remove_all(dir_); }
  const std::string dir_;
};

TEST_P(GeoTwoTablesCheckpointTest, ARestoredRankHoldsTheRowsOfBothTables) {
  Init(4);
  WorkerCuts cuts("job-1", 0, 5, [] {});
  context_.cuts = &cuts;
  trainer_ = std::make_unique<GeoTrainer>(context_);
  Train({Batch({7, 8}, {7}), Batch({9}, {8, 10}), Batch({7}, {})});
  const auto save = [&](uint64_t number) {
    WorkerCheckpoint wanted;
    wanted.set_number(number);
    wanted.set_park(true);
    wanted.set_directory(absl::StrCat(dir_, "/", number));
    wanted.set_save_id(kGeoTrainerSaveId);
    cuts.SetWanted(wanted);
    trainer_->AnswerCheckpoint();
    PollRequest report;
    cuts.AddTo(&report);
    EXPECT_EQ(report.cut().error(), "");
    return report.cut().state().file();
  };
  GeoRestore restore;
  restore.file = save(1);
  restore.directory = dir_ + "/1";
  const std::vector<size_t> dims = {1, kWideDim};
  net_ = GetParam() ? std::make_unique<OnesDeviceNet>(dims) : std::make_unique<OnesNet>(dims);
  context_.net = net_.get();
  trainer_ = std::make_unique<GeoTrainer>(context_);
  ASSERT_TRUE(trainer_->Restore(restore).ok());
  const SavedFile again = save(2);
  EXPECT_EQ(BytesOf(dir_ + "/2/" + again.name()), BytesOf(dir_ + "/1/" + again.name()));
}

INSTANTIATE_TEST_SUITE_P(Values, GeoTwoTablesCheckpointTest, ::testing::Bool());

INSTANTIATE_TEST_SUITE_P(Values, GeoCheckpointTest, ::testing::Bool());

}  // namespace
}  // namespace sluice
