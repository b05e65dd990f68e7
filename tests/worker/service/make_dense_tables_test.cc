#include "worker/service/make_dense_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/worker/fake_collective.h"
#include "tests/worker/fakes.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A job with a sparse table, and three dense ones of which workers keep some.
class MakeDenseTablesTest : public ::testing::Test {
 protected:
  absl::StatusOr<JobDenseTables> Make(const std::vector<bool>& on_workers) {
    std::vector<TableConfig> tables = {SgdTable("rows", TableConfig::SPARSE, 1, 1.0f)};
    for (size_t i = 0; i < on_workers.size(); ++i) {
      tables.push_back(SgdTable(absl::StrCat("dense", i), TableConfig::DENSE, 2, 1.0f));
      if (on_workers[i]) tables.back().set_update_at(TableConfig::COLLECTIVE);
    }
    model_ = std::make_unique<TablesModel>(tables);
    spec_.clear_tables();
    for (const TableConfig& table : tables) *spec_.add_tables() = table;
    spec_.set_worker_num(2);
    spec_.mutable_route()->set_generation(5);
    DenseTablesOptions options;
    options.model = model_.get();
    options.spec = &spec_;
    options.layouts = *CreateTableLayouts(spec_.tables(), /*seed=*/1);
    options.env = &env_;
    options.rejoins = rejoins_;
    options.group.rank = 1;
    if (has_engine_) {
      options.make_collective =
          [this](const JobConfig& config) -> absl::StatusOr<std::unique_ptr<Collective>> {
        configs_.push_back(config.name());
        if (!engine_.ok()) return engine_;
        return std::make_unique<FakeCollective>();
      };
    }
    return MakeDenseTables(std::move(options));
  }
  // By dense table: 1 if it is pulled from pservers.
  std::vector<int> Pulled(const DenseTables& tables) {
    StepBuffers buffers;
    buffers.dense.resize(3, std::vector<float>(2));
    PullRequest pull;
    tables.AddToPull(&buffers, &pull);
    std::vector<int> pulled(3);
    for (const auto& table : pull.dense) ++pulled[table.table - 1];
    return pulled;
  }

  MemoryEnv env_;
  JobSpec spec_;
  std::unique_ptr<TablesModel> model_;
  bool rejoins_ = false, has_engine_ = true;
  absl::Status engine_;
  std::vector<std::string> configs_;  // of the jobs for which an engine was made
};

TEST_F(MakeDenseTablesTest, TablesOfPserversNeedNoEngine) {
  has_engine_ = false;
  const auto made = Make({false, false, false});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(Pulled(*made->tables), ElementsAre(1, 1, 1));
  EXPECT_FALSE(made->tables->leaves_early());
  EXPECT_EQ(made->meetings, nullptr);
}

TEST_F(MakeDenseTablesTest, AnEngineIsMadeOnlyForTablesOfWorkers) {
  spec_.mutable_config()->set_name("a job");
  ASSERT_TRUE(Make({false, false, false}).ok());
  EXPECT_THAT(configs_, IsEmpty());
  ASSERT_TRUE(Make({true, true, true}).ok());
  EXPECT_THAT(configs_, ElementsAre("a job"));
}

TEST_F(MakeDenseTablesTest, WorkersKeepAllTables) {
  const auto made = Make({true, true, true});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(Pulled(*made->tables), ElementsAre(0, 0, 0));
  EXPECT_TRUE(made->tables->leaves_early());
  EXPECT_EQ(made->tables->ValuesOf({}).size(), 3u);
  ASSERT_NE(made->meetings, nullptr);
  EXPECT_EQ(made->meetings->rank(), 1u);
  EXPECT_EQ(made->meetings->ranks(), 2u);
}

TEST_F(MakeDenseTablesTest, BothKeepSome) {
  const auto made = Make({false, true, false});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(Pulled(*made->tables), ElementsAre(1, 0, 1));
  EXPECT_TRUE(made->tables->leaves_early());
  StepBuffers pulled;
  pulled.dense.resize(3, std::vector<float>(2));
  const std::vector<const float*> values = made->tables->ValuesOf(pulled);
  EXPECT_EQ(values[0], pulled.dense[0].data());
  EXPECT_NE(values[1], pulled.dense[1].data());
  EXPECT_EQ(values[2], pulled.dense[2].data());
  EXPECT_NE(made->meetings, nullptr);
}

TEST_F(MakeDenseTablesTest, ARankThatRejoinsHoldsNoTablesYet) {
  for (const bool rejoins : {false, true}) {
    rejoins_ = rejoins;
    const auto made = Make({false, true, true});
    ASSERT_TRUE(made.ok()) << made.status();
    PollRequest report;
    made->meetings->AddTo(&report);
    EXPECT_EQ(report.group().holds_tables(), !rejoins);
  }
}

TEST_F(MakeDenseTablesTest, RanksOfAJobThatOnlyEvaluatesDoNotMeet) {
  spec_.mutable_config()->set_evaluate_only(true);
  const auto made = Make({true, true, true});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->meetings, nullptr);
}

TEST_F(MakeDenseTablesTest, TablesOfWorkersNeedAnEngine) {
  engine_ = absl::UnavailableError("no shared memory");
  EXPECT_EQ(Make({true, false, false}).status(), engine_);
  has_engine_ = false;
  EXPECT_EQ(Make({true, false, false}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MakeDenseTablesTest, AFrozenTableIsPulledUntilItIsThereAndNeverPushed) {
  std::vector<TableConfig> configs = {SgdTable("weight", TableConfig::DENSE, 2, 1.0f),
                                      SgdTable("frozen", TableConfig::DENSE, 3, 1.0f)};
  configs[1].mutable_optimizer()->set_learning_rate(0);
  model_ = std::make_unique<TablesModel>(configs);
  const PserverDenseTables tables(model_.get());
  const auto pull = [&](StepBuffers* into) {
    into->dense.assign(2, {});
    into->dense[0].resize(2);
    PullRequest request;
    tables.AddToPull(into, &request);
    std::vector<uint32_t> pulled;
    for (const auto& table : request.dense) pulled.push_back(table.table);
    return pulled;
  };
  // Two pulls begin before one has ended.
  StepBuffers first, second, third;
  EXPECT_THAT(pull(&first), ElementsAre(0, 1));
  EXPECT_THAT(pull(&second), ElementsAre(0, 1));
  ASSERT_EQ(first.dense[1].size(), 3u);
  first.dense[1] = second.dense[1] = {7, 8, 9};
  const std::vector<const float*> values = tables.ValuesOf(first);
  EXPECT_EQ(values[0], first.dense[0].data());
  EXPECT_THAT(std::vector<float>(values[1], values[1] + 3), ElementsAre(7, 8, 9));
  EXPECT_THAT(pull(&third), ElementsAre(0));
  EXPECT_THAT(third.dense[1], IsEmpty());
  for (const StepBuffers* later : {&second, &third})
    EXPECT_EQ(tables.ValuesOf(*later)[1], values[1]);
  PushRequest push;
  tables.AddToPush(&first, &push);
  ASSERT_EQ(push.dense.size(), 2u);
  EXPECT_EQ(push.dense[0].values, first.dense[0].data());
  EXPECT_EQ(push.dense[1].table, 1u);
  EXPECT_EQ(push.dense[1].values, nullptr);
}

TEST_F(MakeDenseTablesTest, OnlyPserversTreatAFrozenTableInItsOwnWay) {
  for (const auto at : {TableConfig::COLLECTIVE, TableConfig::WORKER, TableConfig::PSERVER}) {
    TableConfig config = SgdTable("frozen", TableConfig::DENSE, 3, 0.0f);
    config.set_update_at(at);
    EXPECT_EQ(IsFrozenTable(config), at == TableConfig::PSERVER);
    config.mutable_optimizer()->set_learning_rate(0.5f);
    EXPECT_FALSE(IsFrozenTable(config));
  }
  EXPECT_FALSE(IsFrozenTable(SgdTable("rows", TableConfig::SPARSE, 3, 0.0f)));
}

// A sparse table, then four dense ones.
std::vector<TableConfig> FourDenseTables() {
  std::vector<TableConfig> tables = {SgdTable("rows", TableConfig::SPARSE, 1, 1.0f)};
  for (int i = 0; i < 4; ++i)
    tables.push_back(SgdTable(absl::StrCat("dense", i), TableConfig::DENSE, 2, 1.0f));
  return tables;
}

// The tables that workers keep. Records the calls.
class RecordingWorkers : public DenseTables {
 public:
  explicit RecordingWorkers(std::vector<std::string>* calls) : calls_(calls) {}
  void AddToPull(StepBuffers*, PullRequest*) const override {}
  std::vector<const float*> ValuesOf(const StepBuffers&) const override {
    return {first.data(), second.data()};
  }
  void AddToPush(const StepBuffers*, PushRequest*) const override {}
  bool leaves_early() const override { return true; }
  void Ready(const StepBuffers& gradients, double weight, size_t i) override {
    Note("ready", i, weight, gradients.dense[i][0]);
  }
  void Send(uint64_t step, const StepBuffers* gradients, double weight) override {
    Note("send", step, weight, gradients == nullptr ? 0 : 1);
  }
  absl::Status Exchange(uint64_t step, const StepBuffers* gradients, double weight) override {
    Note("exchange", step, weight, gradients == nullptr ? 0 : 1);
    return exchanged;
  }
  absl::Status CloseStep(uint64_t steps) override {
    Note("close", steps);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<SavedFile>> SaveModel(const std::string& directory,
                                                   const std::string& save_id) override {
    Note("model", directory, save_id);
    return std::vector<SavedFile>(2);
  }
  void SaveCheckpoint(uint64_t number, uint64_t step, Saved done) override {
    Note("checkpoint", number, step);
    done(std::vector<SavedFile>(3));
  }
  void Cancel() override { Note("cancel"); }
  std::string WaitingFor() const override { return "rank 1"; }

  std::vector<float> first = {10, 11}, second = {30, 31};
  absl::Status exchanged;

 private:
  template <class... Values>
  void Note(const Values&... values) {
    calls_->push_back(absl::StrJoin(std::make_tuple(values...), " "));
  }
  std::vector<std::string>* const calls_;
};

// Pservers keep dense tables 0 and 2, workers 1 and 3.
class MixedDenseTablesTest : public ::testing::Test {
 protected:
  MixedDenseTablesTest() {
    for (float i = 0; i < 4; ++i) buffers_.dense.push_back({i, i + 0.5f});
    MixedDenseTables::Options options;
    options.on_workers = {false, true, false, true};
    options.pservers = std::make_unique<PserverDenseTables>(&model_, std::vector<size_t>{0, 2});
    auto workers = std::make_unique<RecordingWorkers>(&calls_);
    workers_ = workers.get();
    options.workers = std::move(workers);
    tables_ = std::make_unique<MixedDenseTables>(std::move(options));
  }

  const TablesModel model_{FourDenseTables()};
  std::vector<std::string> calls_;
  RecordingWorkers* workers_ = nullptr;
  std::unique_ptr<MixedDenseTables> tables_;
  StepBuffers buffers_;  // of dense table i: i, i + 0.5
};

TEST_F(MixedDenseTablesTest, EachTablesValuesComeFromTheSideThatKeepsIt) {
  EXPECT_THAT(tables_->ValuesOf(buffers_),
              ElementsAre(buffers_.dense[0].data(), workers_->first.data(),
                          buffers_.dense[2].data(), workers_->second.data()));
}

TEST_F(MixedDenseTablesTest, OnlyTablesOfPserversArePulledAndPushed) {
  PullRequest pull;
  tables_->AddToPull(&buffers_, &pull);
  ASSERT_EQ(pull.dense.size(), 2u);
  EXPECT_EQ(pull.dense[0].table, 1u);
  EXPECT_EQ(pull.dense[0].values, buffers_.dense[0].data());
  EXPECT_EQ(pull.dense[1].table, 3u);
  EXPECT_EQ(pull.dense[1].values, buffers_.dense[2].data());
  PushRequest push;
  tables_->AddToPush(&buffers_, &push);
  ASSERT_EQ(push.dense.size(), 2u);
  EXPECT_EQ(push.dense[0].table, 1u);
  EXPECT_EQ(push.dense[0].values, buffers_.dense[0].data());
  EXPECT_EQ(push.dense[1].table, 3u);
  EXPECT_EQ(push.dense[1].values, buffers_.dense[2].data());
}

TEST_F(MixedDenseTablesTest, ARankWithoutExamplesPushesItsTablesWithoutValues) {
  PushRequest push;
  tables_->AddToPush(nullptr, &push);
  ASSERT_EQ(push.dense.size(), 2u);
  for (const auto& table : push.dense) EXPECT_EQ(table.values, nullptr);
  EXPECT_TRUE(tables_->Exchange(4, nullptr, 0).ok());
  EXPECT_THAT(calls_, ElementsAre("exchange 4 0 0"));
}

TEST_F(MixedDenseTablesTest, OnlyGradientsOfTheWorkersTablesLeaveEarly) {
  EXPECT_TRUE(tables_->leaves_early());
  for (size_t i = 4; i-- > 0;) tables_->Ready(buffers_, 7, i);
  EXPECT_THAT(calls_, ElementsAre("ready 3 7 3", "ready 1 7 1"));
}

TEST_F(MixedDenseTablesTest, TheWorkersPartExchangesAndClosesTheStep) {
  tables_->Send(4, &buffers_, 7);
  EXPECT_TRUE(tables_->Exchange(4, &buffers_, 7).ok());
  EXPECT_TRUE(tables_->CloseStep(5).ok());
  workers_->exchanged = absl::UnavailableError("rank 1 has ended");
  EXPECT_EQ(tables_->Exchange(5, &buffers_, 7).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("send 4 7 1", "exchange 4 7 1", "close 5", "exchange 5 7 1"));
}

TEST_F(MixedDenseTablesTest, TheWorkersPartWaitsAndIsCancelled) {
  EXPECT_EQ(tables_->WaitingFor(), "rank 1");
  tables_->Cancel();
  EXPECT_THAT(calls_, ElementsAre("cancel"));
}

TEST_F(MixedDenseTablesTest, TheWorkersPartWritesItsFilesOfModelsAndCheckpoints) {
  const auto model = tables_->SaveModel("/m", "id");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->size(), 2u);
  size_t files = 0;
  tables_->SaveCheckpoint(5, 60, [&](const auto& saved) { files = saved->size(); });
  EXPECT_EQ(files, 3u);
  EXPECT_THAT(calls_, ElementsAre("model /m id", "checkpoint 5 60"));
}

}  // namespace
}  // namespace sluice
