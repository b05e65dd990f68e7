// Checks the values that a network sees in async training with a cache of hot rows, kept on the
// device and in host memory.
#include "worker/step/hot_row_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "client/key_set.h"
#include "tests/worker/fakes.h"
#include "worker/data/batch_keys.h"
#include "worker/train/async_trainer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The value of every row is the number of pushes that came before the pull.
class CountingClient : public FakeClient {
 public:
  using FakeClient::FakeClient;

 protected:
  float ValueOf(uint32_t, uint64_t) override { return static_cast<float>(pushes.size()); }
};

class FakeResidentRows : public ResidentRows {
 public:
  FakeResidentRows(size_t capacity, size_t dim)
      : values(capacity, std::vector<float>(dim, -1)), dim_(dim) {}
  size_t capacity() const override { return values.size(); }
  absl::Status Write(const uint32_t* slots, size_t n, const float* from) override {
    for (size_t i = 0; i < n; ++i) {
      if (slots[i] >= values.size()) return absl::OutOfRangeError("no such slot");
      values[slots[i]].assign(from + i * dim_, from + (i + 1) * dim_);
    }
    return absl::OkStatus();
  }
  std::vector<std::vector<float>> values;

 private:
  const size_t dim_;
};

// Reads its rows from slots.
class ResidentNet : public OnesNet {
 public:
  using OnesNet::OnesNet;
  absl::StatusOr<std::unique_ptr<ResidentRows>> MakeResidentRows(size_t table,
                                                                 size_t capacity) override {
    if (capacity > most) return absl::ResourceExhaustedError("wanted more than the device has");
    return std::make_unique<FakeResidentRows>(capacity, dims[table]);
  }
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override {
    NetInput read = input;
    std::vector<std::vector<float>> values(input.rows.size());
    for (size_t table = 0; table < input.rows.size(); ++table) {
      const RowsInput& rows = input.rows[table];
      if (rows.resident == nullptr) continue;
      if (table == 0) ++resident_steps;
      const auto* resident = static_cast<const FakeResidentRows*>(rows.resident);
      for (size_t i = 0; i < rows.n; ++i) {
        const std::vector<float>& row = resident->values[rows.slots[i]];
        values[table].insert(values[table].end(), row.begin(), row.end());
      }
      read.rows[table].values = values[table].data();
    }
    return OnesNet::TrainStep(read, seed, epoch, gradients);
  }
  size_t most = 1000;
  int resident_steps = 0;  // whose first table is resident
};

class HotRowCacheTest : public ::testing::Test {
 protected:
  HotRowCacheTest() : client_(model_, 1.0f) {
    context_.spec = &spec_;
    context_.model = &model_;
    context_.net = &net_;
    context_.client = &client_;
    context_.dense = &dense_;
    context_.stats = &stats_;
    context_.cancelled = &cancelled_;
    context_.log = [this](const std::string& line) { log_.push_back(line); };
    Configure(1, 1000, 3);
  }

  void Configure(uint32_t depth, uint64_t rows, uint32_t max_staleness) {
    spec_.mutable_config()->mutable_train()->set_pipeline_depth(depth);
    HotRowCacheConfig* cache = spec_.mutable_config()
                                   ->mutable_strategy()
                                   ->mutable_a_sync_configs()
                                   ->mutable_hot_row_cache();
    cache->set_rows(rows);
    cache->set_max_staleness_steps(max_staleness);
  }

  absl::Status Train(AsyncTrainer* trainer, const std::vector<std::vector<uint64_t>>& batches) {
    BatchQueue queue(batches.size() + 1);
    for (const std::vector<uint64_t>& keys : batches) {
      auto prepared = std::make_shared<PreparedBatch>();
      prepared->batch.n = 1;
      prepared->batch.keys = keys;
      prepared->row_index.resize(keys.size());
      prepared->keys.resize(1);
      dedup_.Run(*client_.tables()[0], keys.data(), keys.size(), &prepared->keys[0],
                 prepared->row_index.data());
      queue.Push(prepared);
    }
    queue.Close(absl::OkStatus());
    EpochPlan plan;
    plan.task_trained = [](uint64_t, uint64_t) {};
    return trainer->Train(plan, &queue);
  }

  FakeModel model_;
  PserverDenseTables dense_{&model_};
  ResidentNet net_;
  JobSpec spec_;
  WorkerStats stats_{"job", 0, 1000, nullptr};
  std::atomic<bool> cancelled_{false};
  CountingClient client_;
  JobContext context_;
  KeyDeduplicator dedup_;
  std::vector<std::string> log_;
};

std::vector<std::vector<uint64_t>> RandomBatches(uint32_t seed, size_t n) {
  std::mt19937 random(seed);
  std::vector<std::vector<uint64_t>> batches(n);
  for (std::vector<uint64_t>& keys : batches) {
    for (int i = 0; i < 20; ++i) keys.push_back(random() % (1 + random() % 60));
  }
  return batches;
}

TEST_F(HotRowCacheTest, NetworkSeesNoValueOlderThanTheBound) {
  for (const bool resident : {true, false}) {
    for (const uint32_t depth : {1, 2, 4}) {
      for (const uint64_t rows : {25, 1000}) {
        SCOPED_TRACE(testing::Message() << resident << " depth " << depth << " rows " << rows);
        const uint32_t bound = depth + 3;
        Configure(depth, rows, bound);
        OnesNet in_host;
        net_ = ResidentNet();
        OnesNet& net = resident ? net_ : in_host;
        context_.net = &net;
        client_.pushes.clear();
        client_.pulled_keys.clear();
        WorkerStats stats("job", 0, 1000, nullptr);
        context_.stats = &stats;
        AsyncTrainer trainer(context_);
        const auto status = Train(&trainer, RandomBatches(depth, 200));
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(net.seen_rows.size(), 200u);
        EXPECT_EQ(net_.resident_steps, resident ? 200 : 0);
        uint64_t oldest = 0, sum = 0, uses = 0;
        for (size_t t = 0; t < net.seen_rows.size(); ++t) {
          EXPECT_EQ(client_.pushes[t].sparse[0].keys->keys.size(), net.seen_rows[t].size());
          for (const float pulled : net.seen_rows[t]) {
            ASSERT_GE(pulled, 0);
            const uint64_t age = t - static_cast<uint64_t>(pulled);
            oldest = std::max(oldest, age);
            sum += age;
            ++uses;
          }
        }
        EXPECT_EQ(oldest, bound);  // none is older, and some are as old
        const HotRowUse use = stats.Progress().hot_rows();
        EXPECT_EQ(use.staleness_max(), oldest);
        EXPECT_EQ(use.staleness_sum(), sum);
        EXPECT_EQ(use.hits() + use.misses(), uses);
        EXPECT_EQ(use.misses(), client_.pulled_keys.size());
        EXPECT_GT(use.hits(), uses / 4);
        EXPECT_EQ(use.whole_batches(), 0u);
      }
    }
  }
}

TEST_F(HotRowCacheTest, WithoutACacheEveryRowIsPulled) {
  spec_.mutable_config()->mutable_strategy()->Clear();
  AsyncTrainer trainer(context_);
  ASSERT_TRUE(Train(&trainer, {{1, 2}, {1, 2}}).ok());
  EXPECT_EQ(client_.pulled_keys.size(), 4u);
  EXPECT_FALSE(stats_.Progress().has_hot_rows());
  EXPECT_EQ(net_.resident_steps, 0);
}

TEST_F(HotRowCacheTest, BatchThatDoesNotFitIsPulledWhole) {
  Configure(1, 2, 3);
  AsyncTrainer trainer(context_);
  const auto status = Train(&trainer, {{1, 2}, {1, 2, 3}, {1, 2, 3}, {1, 2}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(net_.seen_rows, ElementsAre(ElementsAre(0, 0), ElementsAre(1, 1, 1),
                                          ElementsAre(2, 2, 2), ElementsAre(0, 0)));
  EXPECT_EQ(net_.resident_steps, 2);
  const HotRowUse use = stats_.Progress().hot_rows();
  EXPECT_EQ(use.whole_batches(), 2u);
  EXPECT_EQ(use.hits(), 2u);
  EXPECT_EQ(use.staleness_max(), 3u);
  ASSERT_EQ(log_.size(), 2u);  // logged once
  EXPECT_THAT(log_[0], testing::AllOf(HasSubstr("2 hot rows"), HasSubstr("device")));
  EXPECT_THAT(log_[1], testing::AllOf(HasSubstr("hot_row_cache.rows = 2"), HasSubstr("3 unique"),
                                      HasSubstr("4 batches")));
}

TEST_F(HotRowCacheTest, EachEpochStartsWithoutHotRows) {
  AsyncTrainer trainer(context_);
  ASSERT_TRUE(Train(&trainer, {{1}, {1}}).ok());
  ASSERT_TRUE(Train(&trainer, {{1}}).ok());  // more tasks of the same epoch
  EXPECT_EQ(client_.pulled_keys.size(), 1u);
  ASSERT_TRUE(trainer.EndEpoch(0).ok());
  EXPECT_THAT(client_.ended, ElementsAre(0));
  ASSERT_TRUE(Train(&trainer, {{1}, {1}}).ok());
  EXPECT_THAT(net_.seen_rows, ElementsAre(ElementsAre(0), ElementsAre(0), ElementsAre(0),
                                          ElementsAre(3), ElementsAre(3)));
}

TEST_F(HotRowCacheTest, OverflowedStepCountsAsAStepAndKeepsItsRows) {
  Configure(1, 10, 1);
  net_.overflow_steps = {0};
  AsyncTrainer trainer(context_);
  ASSERT_TRUE(Train(&trainer, {{1}, {1}, {1}}).ok());
  EXPECT_THAT(net_.seen_rows, ElementsAre(ElementsAre(0), ElementsAre(2)));
}

TEST_F(HotRowCacheTest, DeviceWithoutRoomFailsAndNamesTheField) {
  net_.most = 999;
  AsyncTrainer trainer(context_);
  const absl::Status status = Train(&trainer, {{1}});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("strategy.a_sync_configs.hot_row_cache.rows 1000"));
}

// Two sparse tables of dims 1 and 3 (TwoTablesModel).
class TwoHotTablesTest : public HotRowCacheTest {
 protected:
  TwoHotTablesTest() {
    context_.model = &two_model_;
    context_.dense = &two_dense_;
    context_.client = &two_client_;
    context_.net = &two_net_;
  }
  // By batch: the keys of table "rows", and those of table "wide".
  absl::Status TrainTables(
      AsyncTrainer* trainer,
      const std::vector<std::pair<std::vector<uint64_t>, std::vector<uint64_t>>>& batches) {
    BatchQueue queue(batches.size() + 1);
    BatchKeys keys;
    for (const auto& [rows, wide] : batches) {
      auto prepared = std::make_shared<PreparedBatch>();
      AppendKeys({wide, rows, {}}, &prepared->batch);
      keys.Find(context_, prepared.get());
      queue.Push(prepared);
    }
    queue.Close(absl::OkStatus());
    EpochPlan plan;
    plan.task_trained = [](uint64_t, uint64_t) {};
    return trainer->Train(plan, &queue);
  }

  TwoTablesModel two_model_;
  PserverDenseTables two_dense_{&two_model_};
  CountingClient two_client_{two_model_, 1.0f};
  ResidentNet two_net_{{1, kWideDim}};
};

TEST_F(TwoHotTablesTest, EachTableHasACacheOfItsOwn) {
  for (const bool resident : {true, false}) {
    SCOPED_TRACE(resident);
    constexpr uint32_t kBound = 5;
    Configure(2, 25, kBound);
    OnesNet in_host({1, kWideDim});
    two_net_ = ResidentNet({1, kWideDim});
    OnesNet& net = resident ? two_net_ : in_host;
    context_.net = &net;
    two_client_.pushes.clear();
    two_client_.pulled_keys.clear();
    two_client_.more_pulled_keys.clear();
    WorkerStats stats("job", 0, 1000, nullptr);
    context_.stats = &stats;
    AsyncTrainer trainer(context_);
    // The tables share the numbers of their keys, but not their use.
    const auto rows = RandomBatches(1, 200), wide = RandomBatches(2, 200);
    std::vector<std::pair<std::vector<uint64_t>, std::vector<uint64_t>>> batches;
    for (size_t i = 0; i < 200; ++i) batches.emplace_back(rows[i], wide[i]);
    const auto status = TrainTables(&trainer, batches);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(net.seen_tables.size(), 200u);
    uint64_t oldest[2] = {0, 0}, sum = 0, uses = 0;
    for (size_t t = 0; t < net.seen_tables.size(); ++t) {
      for (size_t table = 0; table < 2; ++table) {
        const size_t dim = net.dims[table];
        const std::vector<float>& seen = net.seen_tables[t][table];
        ASSERT_EQ(seen.size(), dim * two_client_.pushes[t].sparse[table].keys->keys.size());
        for (size_t at = 0; at < seen.size(); ++at) {
          ASSERT_GE(seen[at], 0);
          ASSERT_EQ(seen[at], seen[at - at % dim]) << "one row";
          const uint64_t age = t - static_cast<uint64_t>(seen[at]);
          oldest[table] = std::max(oldest[table], age);
          if (at % dim != 0) continue;
          sum += age;
          ++uses;
        }
      }
    }
    EXPECT_THAT(oldest, ElementsAre(kBound, kBound));
    const HotRowUse use = stats.Progress().hot_rows();
    EXPECT_EQ(use.staleness_max(), kBound);
    EXPECT_EQ(use.staleness_sum(), sum);
    EXPECT_EQ(use.hits() + use.misses(), uses);
    EXPECT_EQ(use.misses(),
              two_client_.pulled_keys.size() + two_client_.more_pulled_keys[2].size());
    EXPECT_GT(use.hits(), uses / 4);
    EXPECT_EQ(use.whole_batches(), 0u);
  }
}

TEST_F(TwoHotTablesTest, ATableWithoutRoomForABatchIsPulledWholeAlone) {
  Configure(1, 2, 3);
  AsyncTrainer trainer(context_);
  const auto status = TrainTables(&trainer, {{{1, 2}, {1, 2, 3}}, {{1, 2}, {1, 2, 3}}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(two_net_.seen_tables[1],
              ElementsAre(ElementsAre(0, 0), testing::AllOf(testing::SizeIs(9), testing::Each(1))));
  EXPECT_EQ(two_client_.pulled_keys.size(), 2u);
  EXPECT_EQ(two_client_.more_pulled_keys[2].size(), 6u);
  const HotRowUse use = stats_.Progress().hot_rows();
  EXPECT_EQ(use.whole_batches(), 2u);
  EXPECT_EQ(use.hits(), 2u);
  ASSERT_EQ(log_.size(), 3u);  // both caches, and the table without room once
  EXPECT_THAT(log_[1], HasSubstr("'wide', 3 values"));
  EXPECT_THAT(log_[2], testing::AllOf(HasSubstr("3 unique"), HasSubstr("'wide'")));
}

TEST_F(TwoHotTablesTest, EachTableForgetsItsRowsAtTheEndOfAnEpoch) {
  AsyncTrainer trainer(context_);
  ASSERT_TRUE(TrainTables(&trainer, {{{1}, {1}}, {{1}, {1}}}).ok());
  EXPECT_EQ(two_client_.more_pulled_keys[2].size(), 1u);
  ASSERT_TRUE(trainer.EndEpoch(0).ok());
  ASSERT_TRUE(TrainTables(&trainer, {{{1}, {1}}}).ok());
  EXPECT_THAT(two_net_.seen_tables.back(), ElementsAre(ElementsAre(2), ElementsAre(2, 2, 2)));
}

}  // namespace
}  // namespace sluice
