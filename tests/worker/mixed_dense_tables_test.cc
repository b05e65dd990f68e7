#include "worker/mixed_dense_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/worker/fakes.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

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
  void CloseStep(uint64_t steps) override { Note("close", steps); }
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
  tables_->CloseStep(5);
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
