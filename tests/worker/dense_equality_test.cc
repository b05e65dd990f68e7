// Jobs whose dense tables are on pservers, on workers, or on both: each has the same values after
// the same gradients, for every update rule, learning-rate schedule and clipping, with 1, 2 and 4
// ranks. The ranks are threads, and the pservers are the shards alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/collective/make_collective.h"
#include "common/optimizer/update_rule.h"
#include "server/shards/shard.h"
#include "tests/common/optimizer/every_rule.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/worker/fakes.h"
#include "worker/service/make_dense_tables.h"

namespace sluice {
namespace {

constexpr uint64_t kSteps = 9, kRows = 3, kColumns = 7, kElements = kRows * kColumns;

// One table for each rule with each schedule, with and without a warm-up, and with each clipping;
// momentum without Nesterov's step, and the schedules that have steps of a staircase with them.
std::vector<TableConfig> EveryTable() {
  std::vector<TableConfig> tables;
  const auto add = [&](const std::string& name, const OptimizerConfig& optimizer) {
    TableConfig& table = tables.emplace_back();
    table.set_name(name);
    table.set_kind(TableConfig::DENSE);
    table.add_shape(kRows);
    table.add_shape(kColumns);
    table.mutable_initializer()->mutable_uniform()->set_max(1);
    *table.mutable_optimizer() = optimizer;
  };
  for (const std::string& rule : RuleNames()) {
    for (const std::string schedule : kSchedules)
      add(rule + "/" + schedule, Optimizer(rule, schedule));
    OptimizerConfig optimizer = Optimizer(rule, "constant");
    optimizer.mutable_schedule()->clear_warmup_steps();
    add(rule + "/no_warmup", optimizer);
    OptimizerConfig clipped = optimizer;
    clipped.set_clip_value(0.3f);
    add(rule + "/clip_value", clipped);
    clipped = optimizer;
    clipped.set_clip_row_norm(0.5f);
    add(rule + "/clip_row_norm", clipped);
    optimizer.set_weight_decay(rule == "ftrl" ? 0 : 0.01f);
    add(rule + "/weight_decay", optimizer);
  }
  OptimizerConfig heavy_ball = Optimizer("momentum", "constant");
  heavy_ball.mutable_momentum()->set_nesterov(false);
  add("momentum/heavy_ball", heavy_ball);
  OptimizerConfig stairs = Optimizer("sgd", "exponential");
  stairs.mutable_schedule()->mutable_exponential()->set_staircase(true);
  add("sgd/exponential/staircase", stairs);
  stairs = Optimizer("sgd", "inverse_time");
  stairs.mutable_schedule()->mutable_inverse_time()->set_staircase(true);
  add("sgd/inverse_time/staircase", stairs);
  stairs = Optimizer("sgd", "natural");
  stairs.mutable_schedule()->mutable_natural_exponential()->set_staircase(true);
  add("sgd/natural/staircase", stairs);
  return tables;
}

// A job that trains kSteps steps. `on_workers(i)`: whether the workers keep table i.
class Job {
 public:
  Job(uint32_t ranks, const std::function<bool(size_t)>& on_workers)
      : rank_num_(ranks), model_(Placed(on_workers)) {
    for (const TableConfig& table : model_.tables()) *spec_.add_tables() = table;
    spec_.set_worker_num(rank_num_);
    spec_.mutable_route()->set_generation(1);
    spec_.mutable_config()->mutable_strategy()->mutable_sync_configs()->set_fuse_mb(32);
    spec_.mutable_config()->mutable_strategy()->mutable_sync_configs()->set_fuse_layers(4);
    layouts_ = *CreateTableLayouts(spec_.tables(), /*seed=*/3);
    UpdatePolicy policy;
    policy.mode = Mode::kSync;
    policy.worker_num = rank_num_;
    for (const auto& table : layouts_)
      shards_.push_back(table->on_workers() ? nullptr : MakeDenseShard(table, 0, policy));
    for (uint32_t rank = 0; rank < rank_num_; ++rank) ranks_.push_back(MakeRank(rank));
    Meet();
  }

  // By table, after all steps.
  std::vector<std::vector<float>> Train() {
    for (uint64_t step = 0; step < kSteps; ++step) Step(step);
    std::vector<std::vector<float>> values = ValuesOf(0);
    for (uint32_t rank = 1; rank < rank_num_; ++rank) EXPECT_EQ(values, ValuesOf(rank)) << rank;
    return values;
  }

 private:
  static std::vector<TableConfig> Placed(const std::function<bool(size_t)>& on_workers) {
    std::vector<TableConfig> tables = EveryTable();
    for (size_t i = 0; i < tables.size(); ++i)
      if (on_workers(i)) tables[i].set_update_at(TableConfig::COLLECTIVE);
    return tables;
  }

  void OnRanks(const std::function<void(uint32_t rank)>& work) const {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < rank_num_; ++rank) threads.emplace_back(work, rank);
    for (std::thread& thread : threads) thread.join();
  }

  // Stands in for the scheduler, which hands out the cards of all ranks.
  void Meet() {
    if (meetings_.empty()) return;
    std::thread scheduler([&] {
      RankGroupCards cards;
      cards.set_generation(1);
      while (cards.cards_size() < static_cast<int>(rank_num_)) {
        PollRequest report;
        meetings_[cards.cards_size()]->AddTo(&report);
        if (report.group().card().empty()) {
          std::this_thread::yield();
        } else {
          cards.add_cards(report.group().card());
        }
      }
      for (RankMeetings* const rank : meetings_) rank->Ask(1, cards);
    });
    for (RankMeetings* const rank : meetings_) rank->Ask(1, {});
    OnRanks([&](uint32_t rank) {
      const absl::Status met = meetings_[rank]->Meet(/*committed=*/0);
      EXPECT_TRUE(met.ok()) << met;
    });
    scheduler.join();
  }

  std::unique_ptr<DenseTables> MakeRank(uint32_t rank) {
    DenseTablesOptions options;
    options.model = &model_;
    options.spec = &spec_;
    options.layouts = layouts_;
    options.env = &env_;
    options.group.rank = rank;
    options.group.incarnation = rank + 1;
    options.group.patience = absl::Seconds(20);
    options.make_collective = [](const JobConfig&) {
      return MakeCollective("shm", CollectiveOptions());
    };
    absl::StatusOr<JobDenseTables> made = MakeDenseTables(std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    if (made->meetings != nullptr) meetings_.push_back(made->meetings);
    return std::move(made->tables);
  }

  void Step(uint64_t step) {
    std::vector<PushRequest> pushes(rank_num_);
    std::vector<StepBuffers> gradients(rank_num_);
    std::vector<double> weights(rank_num_);
    for (uint32_t rank = 0; rank < rank_num_; ++rank) {
      // In some steps only rank 0 has examples.
      const bool any = rank == 0 || step % 4 != 2;
      weights[rank] = any ? 5 - 1.0 * rank + static_cast<double>(step % 3) : 0;
      for (size_t i = 0; i < layouts_.size(); ++i)
        gradients[rank].dense.push_back(Gradient(step * rank_num_ + rank, i));
      ranks_[rank]->AddToPush(any ? &gradients[rank] : nullptr, &pushes[rank]);
      Push(rank, step, weights[rank], pushes[rank]);
    }
    OnRanks([&](uint32_t rank) {
      const StepBuffers* const own = weights[rank] > 0 ? &gradients[rank] : nullptr;
      // Half of the gradients leave while others are computed.
      for (size_t i = layouts_.size(); own != nullptr && i-- > layouts_.size() / 2;)
        ranks_[rank]->Ready(*own, weights[rank], i);
      ranks_[rank]->Send(step, own, weights[rank]);
      const absl::Status exchanged = ranks_[rank]->Exchange(step, own, weights[rank]);
      EXPECT_TRUE(exchanged.ok()) << exchanged;
    });
    for (const auto& shard : shards_)
      if (shard != nullptr) shard->CloseStep(step + 1);
    for (const auto& rank : ranks_) EXPECT_TRUE(rank->CloseStep(step + 1).ok());
  }

  void Push(uint32_t rank, uint64_t step, double weight, const PushRequest& push) {
    for (const auto& table : push.dense) {
      PushPart part;
      part.rows = table.values == nullptr ? 0 : kElements;
      part.values.assign(table.values, table.values + part.rows);
      FrameId frame;
      frame.rank = rank;
      frame.incarnation = 1;
      frame.sequence = step + 1;
      frame.weight = weight;
      EXPECT_EQ(shards_[table.table]->Apply(frame, &part).status, PART_OK);
    }
  }

  static std::vector<float> Gradient(uint64_t seed, size_t table) {
    std::mt19937_64 random(1000 * seed + table);
    std::normal_distribution<float> normal;
    std::vector<float> gradient(kElements);
    for (float& value : gradient) value = normal(random);
    return gradient;
  }

  std::vector<std::vector<float>> ValuesOf(uint32_t rank) {
    StepBuffers pulled;
    pulled.dense.resize(layouts_.size(), std::vector<float>(kElements));
    PullRequest pull;
    ranks_[rank]->AddToPull(&pulled, &pull);
    for (const auto& table : pull.dense)
      shards_[table.table]->Read(nullptr, 0, reinterpret_cast<uint8_t*>(table.values));
    std::vector<std::vector<float>> values;
    for (const float* table : ranks_[rank]->ValuesOf(pulled))
      values.emplace_back(table, table + kElements);
    return values;
  }

  const uint32_t rank_num_;
  const TablesModel model_;
  JobSpec spec_;
  MemoryEnv env_;
  TableLayouts layouts_;
  std::vector<std::unique_ptr<Shard>> shards_;  // by table; null: workers keep it
  std::vector<std::unique_ptr<DenseTables>> ranks_;
  std::vector<RankMeetings*> meetings_;  // by rank; empty: workers keep no table
};

double Norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  return std::sqrt(squares);
}

// Expects each table of `job` to have the values of the job of as many ranks whose tables are all
// on pservers.
void ExpectCloseValue(uint32_t ranks, const std::vector<std::vector<float>>& job) {
  const auto expected = Job(ranks, [](size_t) { return false; }).Train();
  const std::vector<TableConfig> tables = EveryTable();
  const std::vector<std::vector<float>> start = [&] {
    google::protobuf::RepeatedPtrField<TableConfig> all(tables.begin(), tables.end());
    std::vector<std::vector<float>> values;
    const TableLayouts layouts = *CreateTableLayouts(all, /*seed=*/3);
    for (const auto& layout : layouts)
      layout->InitialElements(0, kElements, values.emplace_back(kElements).data());
    return values;
  }();
  ASSERT_EQ(job.size(), tables.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    std::vector<float> off(kElements), moved(kElements);
    for (size_t k = 0; k < kElements; ++k) {
      off[k] = job[i][k] - expected[i][k];
      moved[k] = job[i][k] - start[i][k];
    }
    EXPECT_TRUE(Norm(off) <= 1e-6 * Norm(expected[i])) << tables[i].name() << " " << Norm(off);
    EXPECT_GT(Norm(moved), 0.01 * Norm(start[i])) << tables[i].name() << " was not trained";
  }
}

class DenseEqualityTest : public testing::TestWithParam<uint32_t> {
 protected:
  static std::vector<std::vector<float>> Train(const std::function<bool(size_t)>& on_workers) {
    return Job(GetParam(), on_workers).Train();
  }
};

TEST_P(DenseEqualityTest, TablesOnWorkersHaveTheValuesOfTablesOnPservers) {
  ExpectCloseValue(GetParam(), Train([](size_t) { return true; }));
}

// In one of the two jobs, each table is on the workers while its neighbours are on the pservers.
TEST_P(DenseEqualityTest, TablesOfAMixedJobHaveTheValuesOfTablesOnPservers) {
  ExpectCloseValue(GetParam(), Train([](size_t i) { return i % 2 == 1; }));
  ExpectCloseValue(GetParam(), Train([](size_t i) { return i % 2 == 0; }));
}

TEST_P(DenseEqualityTest, ATableHasTheSameBitsWhereverTheOthersAre) {
  const auto all = Train([](size_t) { return true; });
  const auto none = Train([](size_t) { return false; });
  const auto mixed = Train([](size_t i) { return i % 3 == 0; });
  for (size_t i = 0; i < mixed.size(); ++i)
    EXPECT_EQ(mixed[i], i % 3 == 0 ? all[i] : none[i]) << EveryTable()[i].name();
}

INSTANTIATE_TEST_SUITE_P(Ranks, DenseEqualityTest, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace sluice
