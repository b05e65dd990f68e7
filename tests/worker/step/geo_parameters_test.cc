#include "worker/step/geo_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "tests/worker/fakes.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr char kGeoParametersSaveId[] = "0123456789abcdef";

// The unique keys of a table.
KeySet Unique(const TableLayout& table, const std::vector<uint64_t>& keys) {
  KeySet unique;
  std::vector<uint32_t> index(keys.size());
  KeyDeduplicator().Run(table, keys.data(), keys.size(), &unique, index.data());
  return unique;
}

// A store of rows of one weight, with steps on `keys`, a gradient for each, and exchanges.
class OneWeightStore {
 public:
  OneWeightStore(const OptimizerConfig& optimizer, uint64_t max_rows) {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    *tables.Add() = SgdTable("rows", TableConfig::SPARSE, 1, 1.0f);
    *tables[0].mutable_columns(0)->mutable_optimizer() = optimizer;
    layouts_ = *CreateTableLayouts(tables, 1);
    store_ = std::make_unique<GeoParameters>(std::vector<const TableLayout*>(),
                                             std::vector<const TableLayout*>{layouts_[0].get()},
                                             max_rows);
  }
  void Step(const std::vector<uint64_t>& keys, const std::vector<float>& gradients) {
    ASSERT_TRUE(TryStep(keys, gradients).ok());
  }
  absl::Status TryStep(const std::vector<uint64_t>& keys, const std::vector<float>& gradients) {
    const std::vector<uint32_t> index = Find(keys);
    const std::vector<float> zeros(found_[0].missing.keys.size());
    SLUICE_RETURN_IF_ERROR(store_->Fill(0, &found_, zeros.data()));
    std::vector<float> by_row(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) by_row[index[i]] = gradients[i];
    SLUICE_RETURN_IF_ERROR(store_->Update(found_, {by_row.data()}, {}, step_++));
    for (const uint32_t slot : found_[0].slots) slots_ = std::max(slots_, slot + 1);
    return absl::OkStatus();
  }
  // Returns the deltas, which are under way until Receive.
  std::map<uint64_t, float> Send() {
    std::vector<KeySet> keys;
    EXPECT_TRUE(store_->TakeDelta(&keys, &sent_).ok());
    std::map<uint64_t, float> deltas;
    for (size_t i = 0; i < sent_.rows[0].size(); ++i) deltas[keys[0].keys[i]] = sent_.rows[0][i];
    return deltas;
  }
  // The server has 0 everywhere.
  void Receive() {
    GeoParameters::Values server{{std::vector<float>(sent_.rows[0].size())}, {}};
    EXPECT_TRUE(store_->Merge(&sent_, &server).ok());
  }
  // Returns the deltas; the server then has 0 everywhere.
  std::map<uint64_t, float> Exchange() {
    const std::map<uint64_t, float> deltas = Send();
    Receive();
    return deltas;
  }
  // Returns the keys whose rows a step would have to pull.
  std::set<uint64_t> Missing(const std::vector<uint64_t>& keys) {
    Find(keys);
    return {found_[0].missing.keys.begin(), found_[0].missing.keys.end()};
  }
  // Counts a step that uses these rows and updates none.
  HotRowUse Use(const std::vector<uint64_t>& keys) {
    Find(keys);
    const std::vector<float> zeros(found_[0].missing.keys.size());
    EXPECT_TRUE(store_->Fill(0, &found_, zeros.data()).ok());
    return store_->Use(found_);
  }
  uint64_t rows() const { return store_->rows(0); }
  uint32_t slots() const { return slots_; }

 private:
  // Sets found_. Returns the position of each key in its slots.
  std::vector<uint32_t> Find(const std::vector<uint64_t>& keys) {
    std::vector<KeySet> unique(1);
    std::vector<uint32_t> index(keys.size());
    dedup_.Run(*layouts_[0], keys.data(), keys.size(), &unique[0], index.data());
    store_->Find(unique, &found_);
    return index;
  }

  TableLayouts layouts_;
  std::unique_ptr<GeoParameters> store_;
  KeyDeduplicator dedup_;
  GeoParameters::Found found_;
  GeoParameters::Values sent_;
  uint64_t step_ = 0;
  uint32_t slots_ = 0;
};

OptimizerConfig Sgd() {
  OptimizerConfig sgd;
  sgd.mutable_sgd();
  sgd.set_learning_rate(1);
  return sgd;
}

TEST(GeoParametersTest, SlotsOfEvictedRowsAreReusedWithFreshStateAndCount) {
  OptimizerConfig adam;
  adam.mutable_adam();
  adam.set_learning_rate(1);
  OneWeightStore store(adam, /*max_rows=*/2);
  for (uint64_t key = 100; key < 110; ++key) {
    // With fresh state and count, Adam moves by the rate while the gradient does not change.
    store.Step({key}, {3.0f});
    store.Step({key}, {3.0f});
    const std::map<uint64_t, float> deltas = store.Exchange();
    ASSERT_EQ(deltas.size(), 1u);
    EXPECT_NEAR(deltas.at(key), -2.0f, 1e-5);
    EXPECT_LE(store.rows(), 2u);
  }
  EXPECT_EQ(store.slots(), 3u);
}

TEST(GeoParametersTest, AnUpdateThatMakesAValueInfiniteNamesTheKey) {
  OptimizerConfig adagrad;
  adagrad.mutable_adagrad();
  OneWeightStore store(WithDefaults(adagrad), /*max_rows=*/100);
  EXPECT_TRUE(store.TryStep({7, 8}, {1.0f, 1.0f}).ok());
  // The square overflows, without a trace in the weight.
  const absl::Status status = store.TryStep({7, 8}, {1.0f, 3e38f});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr("'rows'"),
                               ::testing::HasSubstr("optimizer state of key 8")));
}

TEST(GeoParametersTest, FtrlContinuesFromTheValuesOfTheServer) {
  OptimizerConfig ftrl;
  ftrl.mutable_ftrl()->set_beta(0);
  ftrl.set_learning_rate(0.5f);
  OneWeightStore store(ftrl, /*max_rows=*/100);
  store.Step({7}, {3.0f});
  EXPECT_EQ(store.Exchange().at(7), -0.5f);  // -rate * 3 / sqrt(9)
  // The server has 0: the weight moves from there, by rate * 4 / sqrt(9 + 16).
  store.Step({7}, {4.0f});
  EXPECT_NEAR(store.Exchange().at(7), -0.4f, 1e-6);
}

TEST(GeoParametersTest, DeltasBelongToTheirKeysAndRowsStayWithinTheLimit) {
  OneWeightStore store(Sgd(), /*max_rows=*/2);
  // One by one, so that the order of updates differs from the order of shards.
  for (uint64_t key = 1; key <= 20; ++key) store.Step({key}, {static_cast<float>(key)});
  const std::map<uint64_t, float> deltas = store.Exchange();
  ASSERT_EQ(deltas.size(), 20u);
  for (const auto& [key, delta] : deltas) EXPECT_EQ(delta, -static_cast<float>(key));
  EXPECT_EQ(store.rows(), 2u);
  // A second eviction, while there are free slots.
  for (uint64_t key = 30; key < 36; ++key) {
    store.Step({key}, {1.0f});
    store.Exchange();
    EXPECT_EQ(store.rows(), 2u);
  }
  EXPECT_EQ(store.slots(), 20u);
}

TEST(GeoParametersTest, LearningRateFollowsTheWorkersSteps) {
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
  GeoParameters store({layouts[1].get()}, {layouts[0].get()}, 100);
  GeoParameters::Found found;
  store.Find({Unique(*layouts[0], {5})}, &found);
  const float zero = 0.0f, one[2] = {1.0f, 1.0f};
  ASSERT_TRUE(store.Fill(0, &found, &zero).ok());
  for (uint64_t step = 0; step < 3; ++step)
    ASSERT_TRUE(store.Update(found, {one}, {one}, step).ok());
  float value;
  store.Gather(0, found, &value);
  EXPECT_EQ(value, -1.75f);  // 1 + 1/2 + 1/4
  EXPECT_EQ(store.dense(0)[1], -1.75f);
}

TEST(GeoParametersTest, MovesMadeAfterTheSendSurviveTheMerge) {
  FakeModel model;
  FakeClient client(model, 1.0f);
  GeoParameters store({client.tables()[1].get()}, {client.tables()[0].get()}, 100);
  GeoParameters::Found found;
  store.Find({Unique(*client.tables()[0], {5})}, &found);
  ASSERT_EQ(found[0].missing.keys.size(), 1u);
  const float pulled = 1.0f, one[2] = {1.0f, 1.0f};
  const float nothing[2] = {0.0f, 0.0f};
  ASSERT_TRUE(store.Fill(0, &found, &pulled).ok());
  ASSERT_TRUE(store.Update(found, {one}, {nothing}, 0).ok());  // local 0
  std::vector<KeySet> sent;
  GeoParameters::Values delta;
  ASSERT_TRUE(store.TakeDelta(&sent, &delta).ok());
  ASSERT_EQ(delta.rows[0][0], -1.0f);
  // Local becomes -1 while the delta is under way.
  ASSERT_TRUE(store.Update(found, {one}, {one}, 1).ok());
  GeoParameters::Values server{{{20.0f}}, {{5.0f, 6.0f}}};
  ASSERT_TRUE(store.Merge(&delta, &server).ok());
  float value;
  store.Gather(0, found, &value);
  EXPECT_EQ(value, 19.0f);  // server 20, one move of -1
  EXPECT_EQ(store.dense(0)[0], 4.0f);
  ASSERT_TRUE(store.TakeDelta(&sent, &delta).ok());
  EXPECT_EQ(delta.rows[0][0], -1.0f);  // the move, not the delta that was sent
  EXPECT_EQ(delta.dense[0][1], -1.0f);
}

TEST(GeoParametersTest, RowsNeitherSentNorMovedSinceTheSendAreStaleAfterAMerge) {
  OneWeightStore store(Sgd(), /*max_rows=*/100);
  EXPECT_THAT(store.Missing({1, 2}), ElementsAre(1, 2));
  store.Step({1, 2}, {1, 1});
  EXPECT_THAT(store.Missing({1, 2}), IsEmpty());
  store.Send();
  EXPECT_THAT(store.Missing({1, 2}), IsEmpty()) << "the exchange is under way";
  store.Step({3}, {1});
  store.Receive();
  EXPECT_THAT(store.Missing({1, 2, 3}), IsEmpty()) << "1 and 2 were sent, 3 has moved";
  EXPECT_THAT(store.Exchange(), ElementsAre(Pair(3, -1.0f)));
  EXPECT_THAT(store.Missing({1, 2, 3}), ElementsAre(1, 2));
  EXPECT_EQ(store.rows(), 3u) << "stale rows stay, with their optimizer state";
}

TEST(GeoParametersTest, ARowAgesFromItsPullOrTheSendThatIncludedIt) {
  OneWeightStore store(Sgd(), /*max_rows=*/100);
  const auto use = [&](const std::vector<uint64_t>& keys) {
    const HotRowUse of = store.Use(keys);
    return std::vector<uint64_t>{of.hits(), of.misses(), of.staleness_sum(), of.staleness_max()};
  };
  EXPECT_THAT(use({1}), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(use({1}), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(use({1, 2}), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(use({1, 2}), ElementsAre(2, 0, 4, 3));
  store.Step({1}, {1});
  store.Exchange();
  EXPECT_THAT(use({1, 2}), ElementsAre(1, 1, 0, 0)) << "row 1 was sent, row 2 is pulled again";
  EXPECT_THAT(use({1, 2}), ElementsAre(2, 0, 2, 1));
}

TEST(GeoParametersTest, WithoutKeysNothingIsMissingAndNothingIsSent) {
  const TableLayouts layouts = FakeClient(FakeModel(), 1.0f).tables();
  GeoParameters store({layouts[1].get()}, {layouts[0].get()}, 100);
  GeoParameters::Found found(1);
  found[0].missing.keys = {9};  // of an earlier batch
  store.Find({Unique(*layouts[0], {})}, &found);
  EXPECT_THAT(found[0].missing.keys, IsEmpty());
  EXPECT_THAT(found[0].missing.offsets, SizeIs(layouts[0]->num_shards() + 1));
  EXPECT_THAT(found[0].missing.offsets, Each(0u));
  ASSERT_TRUE(store.Fill(0, &found, nullptr).ok());
  EXPECT_EQ(store.Use(found).misses(), 0u);
  std::vector<KeySet> sent(1);
  sent[0].keys = {9};  // of an earlier exchange
  GeoParameters::Values delta{{{9}}, {}};
  ASSERT_TRUE(store.TakeDelta(&sent, &delta).ok());
  EXPECT_THAT(sent[0].keys, IsEmpty());
  EXPECT_THAT(sent[0].offsets, SizeIs(layouts[0]->num_shards() + 1));
  EXPECT_THAT(delta.rows, ElementsAre(IsEmpty()));
  EXPECT_THAT(delta.dense, ElementsAre(ElementsAre(0.0f, 0.0f)));
}

TEST(GeoParametersTest, AModelWithoutASparseTableSendsItsDenseMovesAlone) {
  const TableLayouts layouts = FakeClient(FakeModel(), 1.0f).tables();
  GeoParameters store({layouts[1].get()}, {}, 100);
  const std::vector<float> start = {3, 4}, gradient = {1, 2};
  ASSERT_TRUE(store.SetDense({start.data()}).ok());
  ASSERT_TRUE(store.Update(GeoParameters::Found(), {}, {gradient.data()}, 0).ok());
  std::vector<KeySet> sent(1);
  GeoParameters::Values delta, server{{}, {{10.0f, 20.0f}}};
  ASSERT_TRUE(store.TakeDelta(&sent, &delta).ok());
  EXPECT_THAT(sent, IsEmpty());
  EXPECT_THAT(delta.rows, IsEmpty());
  EXPECT_THAT(delta.dense, ElementsAre(ElementsAre(-1.0f, -2.0f)));
  ASSERT_TRUE(store.Merge(&delta, &server).ok());
  EXPECT_EQ(std::vector<float>(store.dense(0), store.dense(0) + 2), (std::vector<float>{10, 20}));
}

// A store of a table "a" of dim 3 with Adam, a table "b" of dim 1 with AdaGrad, and dense tables of
// 5 and 2 values with Adam and with plain SGD. A step has a gradient of its own for each value.
class TwoTableStore {
 public:
  explicit TwoTableStore(uint64_t max_rows = 100) {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    *tables.Add() = SgdTable("first", TableConfig::DENSE, 5, 0.1f);
    *tables.Add() = SgdTable("a", TableConfig::SPARSE, 3, 0.1f);
    *tables.Add() = SgdTable("second", TableConfig::DENSE, 2, 0.1f);
    *tables.Add() = SgdTable("b", TableConfig::SPARSE, 1, 0.1f);
    for (OptimizerConfig* optimizer :
         {tables[0].mutable_optimizer(), tables[1].mutable_columns(0)->mutable_optimizer()}) {
      optimizer->mutable_adam()->set_beta1(0.9);
      optimizer->mutable_adam()->set_beta2(0.99);
      optimizer->mutable_adam()->set_epsilon(1e-8);
    }
    OptimizerConfig adagrad;
    adagrad.mutable_adagrad();
    adagrad.set_learning_rate(0.1f);
    *tables[3].mutable_columns(0)->mutable_optimizer() = WithDefaults(adagrad);
    layouts_ = *CreateTableLayouts(tables, 1);
    sparse_ = {layouts_[1].get(), layouts_[3].get()};
    store_ = std::make_unique<GeoParameters>(dense_layouts(), sparse_, max_rows);
    const std::vector<float> start = {1, 2, 3, 4, 5};
    EXPECT_TRUE(store_->SetDense({start.data(), start.data()}).ok());
  }
  GeoParameters* operator->() const { return store_.get(); }
  const TableLayout& table(size_t i) const { return *sparse_[i]; }
  std::vector<const TableLayout*> dense_layouts() const {
    return {layouts_[0].get(), layouts_[2].get()};
  }

  // Trains on these keys of both tables. The server's values of a row are key + 0, 1, ...
  absl::Status Step(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b,
                    float gradient = 0.3f) {
    Find(a, b);
    std::vector<std::vector<float>> gradients(2);
    for (size_t t = 0; t < 2; ++t) {
      std::vector<float> pulled;
      for (const uint64_t key : found_[t].missing.keys) {
        for (size_t d = 0; d < table(t).dim(); ++d) pulled.push_back(static_cast<float>(key + d));
      }
      SLUICE_RETURN_IF_ERROR(store_->Fill(t, &found_, pulled.data()));
      gradients[t].resize(found_[t].slots.size() * table(t).dim());
      for (size_t i = 0; i < gradients[t].size(); ++i) gradients[t][i] = gradient * (1 + i % 3);
    }
    use_ = store_->Use(found_);
    const std::vector<float> dense(5, 0.3f);
    return store_->Update(found_, {gradients[0].data(), gradients[1].data()},
                          {dense.data(), dense.data()}, step_++);
  }
  // Sends, and merges an answer that is the server's value + half of the delta.
  std::vector<std::map<uint64_t, std::vector<float>>> Exchange() {
    std::vector<KeySet> keys;
    GeoParameters::Values delta;
    EXPECT_TRUE(store_->TakeDelta(&keys, &delta).ok());
    GeoParameters::Values server = delta;
    std::vector<std::map<uint64_t, std::vector<float>>> deltas(2);
    for (size_t t = 0; t < 2; ++t) {
      const size_t dim = table(t).dim();
      EXPECT_EQ(keys[t].offsets.size(), table(t).num_shards() + 1);
      for (size_t i = 0; i < keys[t].keys.size(); ++i) {
        const float* const row = delta.rows[t].data() + i * dim;
        deltas[t][keys[t].keys[i]].assign(row, row + dim);
        for (size_t d = 0; d < dim; ++d)
          server.rows[t][i * dim + d] = static_cast<float>(keys[t].keys[i] + d) + 0.5f * row[d];
      }
    }
    EXPECT_TRUE(store_->Merge(&delta, &server).ok());
    return deltas;
  }
  // Returns the missing keys of a table.
  std::set<uint64_t> Missing(size_t t, const std::vector<uint64_t>& keys) {
    Find(keys, keys);
    return {found_[t].missing.keys.begin(), found_[t].missing.keys.end()};
  }
  // The local rows of the last step, by table and key.
  std::vector<std::map<uint64_t, std::vector<float>>> Rows() const {
    std::vector<std::map<uint64_t, std::vector<float>>> rows(2);
    for (size_t t = 0; t < 2; ++t) {
      const size_t dim = table(t).dim();
      std::vector<float> values(keys_[t].keys.size() * dim);
      store_->Gather(t, found_, values.data());
      for (size_t i = 0; i < keys_[t].keys.size(); ++i)
        rows[t][keys_[t].keys[i]].assign(&values[i * dim], &values[i * dim] + dim);
    }
    return rows;
  }
  std::vector<float> Dense() const {
    std::vector<float> values(store_->dense(0), store_->dense(0) + 5);
    values.insert(values.end(), store_->dense(1), store_->dense(1) + 2);
    return values;
  }
  const HotRowUse& use() const { return use_; }  // of the last step
  uint64_t step() const { return step_; }
  void SkipTo(uint64_t step) { step_ = step; }

 private:
  void Find(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
    keys_ = {Unique(table(0), a), Unique(table(1), b)};
    store_->Find(keys_, &found_);
  }

  TableLayouts layouts_;
  std::vector<const TableLayout*> sparse_;
  std::unique_ptr<GeoParameters> store_;
  std::vector<KeySet> keys_;
  GeoParameters::Found found_;
  HotRowUse use_;
  uint64_t step_ = 0;
};

TEST(GeoParametersTest, EachTableSendsItsOwnRowsAndTakesItsOwnAnswer) {
  TwoTableStore store;
  // Several orders of keys and slots; the tables share keys.
  ASSERT_TRUE(store.Step({9, 4}, {4}).ok());
  ASSERT_TRUE(store.Step({7}, {9, 7, 4}).ok());
  const auto local = store.Rows();
  const auto deltas = store.Exchange();
  EXPECT_THAT(deltas[0], ElementsAre(Pair(4, SizeIs(3)), Pair(7, SizeIs(3)), Pair(9, SizeIs(3))));
  EXPECT_THAT(deltas[1], ElementsAre(Pair(4, SizeIs(1)), Pair(7, SizeIs(1)), Pair(9, SizeIs(1))));
  for (size_t d = 0; d < 3; ++d)
    EXPECT_EQ(deltas[0].at(7)[d], local[0].at(7)[d] - static_cast<float>(7 + d));
  EXPECT_EQ(deltas[1].at(9)[0], local[1].at(9)[0] - 9);
  // Nothing has moved since: local is the answer.
  ASSERT_TRUE(store.Step({7}, {9}, 0).ok());
  EXPECT_EQ(store.use().misses(), 0u);
  EXPECT_EQ(store.Rows()[1].at(9)[0], 9 + 0.5f * deltas[1].at(9)[0]);
}

TEST(GeoParametersTest, TheUseOfAStepCountsTheRowsOfAllTables) {
  TwoTableStore store;
  ASSERT_TRUE(store.Step({1, 2}, {1}).ok());
  EXPECT_EQ(store.use().misses(), 3u);
  ASSERT_TRUE(store.Step({1}, {}).ok());
  ASSERT_TRUE(store.Step({1, 3}, {1}).ok());
  EXPECT_EQ(store.use().hits(), 2u);
  EXPECT_EQ(store.use().misses(), 1u);
  EXPECT_EQ(store.use().staleness_sum(), 4u) << "both rows are as old as the first step";
  EXPECT_EQ(store.use().staleness_max(), 2u);
}

TEST(GeoParametersTest, TheLimitOfRowsIsForEachTable) {
  TwoTableStore store(/*max_rows=*/3);
  for (uint64_t key = 1; key <= 6; ++key) ASSERT_TRUE(store.Step({key}, {10 + key % 2}).ok());
  store.Exchange();
  EXPECT_EQ(store->rows(0), 3u);
  EXPECT_EQ(store->rows(1), 2u) << "the rows of the other table count for themselves";
  EXPECT_THAT(store.Missing(0, {1, 2, 3, 4, 5, 6}), ElementsAre(1, 2, 3));
  EXPECT_THAT(store.Missing(1, {10, 11}), IsEmpty());
}

TEST(GeoParametersTest, AnUpdateThatMakesAValueInfiniteNamesTheTableOfItsRow) {
  for (const size_t bad : {0, 1}) {
    TwoTableStore store;
    ASSERT_TRUE(store.Step({7, 8}, {8, 9}).ok());
    // The square of a gradient overflows in the table that has rows in this step.
    const std::vector<uint64_t> keys = {8};
    const absl::Status status =
        bad == 0 ? store.Step(keys, {}, 1e20f) : store.Step({}, keys, 1e20f);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(::testing::HasSubstr(bad == 0 ? "'a'" : "'b'"),
                                 ::testing::HasSubstr("optimizer state of key 8")));
  }
}

// A folder for state files, removed at the end. The files begin with the worker's steps, as those
// of GeoTrainer do: 42.
class StateFolder {
 public:
  StateFolder() : dir_(absl::StrCat(testing::TempDir(), "/geo_parameters_test.", getpid())) {
    std::filesystem::remove_all(dir_);
  }
  ~StateFolder() { std::filesystem::remove_all(dir_); }
  SavedFile Save(const GeoParameters& parameters) const {
    auto writer = GeoStateWriter::Create(Env::Real(), dir_, 0, kGeoParametersSaveId);
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Put(uint64_t{42}).ok());
    const absl::Status saved = parameters.SaveState(writer->get());
    EXPECT_TRUE(saved.ok()) << saved;
    const auto file = (*writer)->Finish();
    EXPECT_TRUE(file.ok()) << file.status();
    return *file;
  }
  absl::Status Restore(const SavedFile& file, GeoParameters* parameters) const {
    auto reader = GeoStateReader::Open(Env::Real(), dir_, file);
    if (!reader.ok()) return reader.status();
    uint64_t steps = 0;
    SLUICE_RETURN_IF_ERROR((*reader)->Get(&steps));
    EXPECT_EQ(steps, 42u);
    SLUICE_RETURN_IF_ERROR(parameters->RestoreState(reader->get()));
    return (*reader)->Finish();
  }
  std::string Bytes(const SavedFile& file) const {
    std::ifstream in(dir_ + "/" + file.name(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  SavedFile Write(const std::string& bytes) const {
    SavedFile file;
    file.set_name(absl::StrCat("worker-0.", kGeoParametersSaveId));
    file.set_bytes(bytes.size());
    file.set_crc32c(Crc32c(bytes.data(), bytes.size()));
    std::filesystem::create_directories(dir_);
    std::ofstream(dir_ + "/" + file.name(), std::ios::binary) << bytes;
    return file;
  }

 private:
  const std::string dir_;
};

// Adam's moments and the counts of its bias correction decide the next moves, AdaGrad's sums too.
TEST(GeoParametersTest, RestoredStateOfTwoTablesMakesTheSameMoves) {
  TwoTableStore one;
  for (uint64_t i = 0; i < 7; ++i)
    ASSERT_TRUE(one.Step({i % 3, 100 + i}, {i, i % 2}, 0.1f * (i + 1)).ok());
  one.Exchange();
  // Restored rows are stale, and those not in an exchange are here too.
  one.Exchange();
  const StateFolder folder;
  const SavedFile file = folder.Save(*one.operator->());

  TwoTableStore other;
  const absl::Status restored = folder.Restore(file, other.operator->());
  ASSERT_TRUE(restored.ok()) << restored;
  other.SkipTo(one.step());
  const float* const dense[] = {one->dense(0), one->dense(1)};
  ASSERT_TRUE(other->SetDense({dense[0], dense[1]}).ok());
  EXPECT_EQ(other->rows(0), one->rows(0));
  EXPECT_EQ(other->rows(1), one->rows(1));
  EXPECT_THAT(other.Missing(1, {0, 1, 2}), ElementsAre(0, 1, 2));
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(one.Step({i % 3, 104, 500 + i}, {i, 3}, -0.2f).ok());
    ASSERT_TRUE(other.Step({i % 3, 104, 500 + i}, {i, 3}, -0.2f).ok());
    EXPECT_EQ(other.Rows(), one.Rows()) << i;
  }
  EXPECT_EQ(other.Dense(), one.Dense());
}

TEST(GeoParametersTest, AStateOfOtherSparseTablesIsDataLoss) {
  TwoTableStore two;
  ASSERT_TRUE(two.Step({1, 2}, {3}).ok());
  const StateFolder folder;
  const SavedFile file = folder.Save(*two.operator->());
  const auto code = [&](const std::vector<const TableLayout*>& sparse) {
    GeoParameters other(two.dense_layouts(), sparse, 100);
    return folder.Restore(file, &other).code();
  };
  const TableLayout *const a = &two.table(0), *const b = &two.table(1);
  EXPECT_EQ(code({a, b}), absl::StatusCode::kOk);
  EXPECT_EQ(code({a}), absl::StatusCode::kDataLoss) << "more tables than the job has";
  EXPECT_EQ(code({a, b, b}), absl::StatusCode::kDataLoss) << "fewer tables than the job has";
  EXPECT_EQ(code({b, a}), absl::StatusCode::kDataLoss) << "another order";
  EXPECT_EQ(code({}), absl::StatusCode::kDataLoss);
}

// A whole file as checkpoints of jobs with one sparse table have it: format and order must stay.
constexpr char kOneTableState[] =
    "534c47454f535431"  // magic
    "78000000f8034a84"  // a block of 120 bytes, its checksum
    "2a00000000000000"  // steps of the worker
    "0200000000000000"  // updates of the dense tables
    "0100000000000000"  // one dense table,
    "0200000000000000"  // two floats of state:
    "0000c04000004041"  // 6, 12
    "0200000000000000"  // two floats of state a row,
    "0200000000000000"  // two rows
    "0807060504030201"  // key,
    "2800000000000000"  // last used in step 40,
    "0100000000000000"  // updated once,
    "0000803f00000040"  // state 1, 2
    "0900000000000000"  // the same of key 9
    "2900000000000000"
    "0200000000000000"
    "0000204000008040"   // state 2.5, 4
    "00000000f8034a84";  // end, checksum of all blocks

TEST(GeoParametersTest, TheStateOfOneSparseTableKeepsItsFormat) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  *tables.Add() = SgdTable("rows", TableConfig::SPARSE, 2, 1.0f);
  *tables.Add() = SgdTable("dense", TableConfig::DENSE, 2, 1.0f);
  for (OptimizerConfig* optimizer :
       {tables[0].mutable_columns(0)->mutable_optimizer(), tables[1].mutable_optimizer()}) {
    optimizer->mutable_momentum()->set_momentum(0.5f);
  }
  const TableLayouts layouts = *CreateTableLayouts(tables, 1);
  const std::string bytes = absl::HexStringToBytes(kOneTableState);
  const StateFolder folder;
  GeoParameters store({layouts[1].get()}, {layouts[0].get()}, 100);
  const absl::Status restored = folder.Restore(folder.Write(bytes), &store);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(absl::BytesToHexString(folder.Bytes(folder.Save(store))),
            absl::BytesToHexString(bytes));
  // Key 9 moves on with its momentum: from 1 by 0.5 x 2.5 and 0.5 x 4.
  const float start[2] = {0, 0}, zero[2] = {0, 0}, pulled[2] = {1, 1};
  ASSERT_TRUE(store.SetDense({start}).ok());
  GeoParameters::Found found;
  store.Find({Unique(*layouts[0], {9})}, &found);
  ASSERT_TRUE(store.Fill(0, &found, pulled).ok());
  ASSERT_TRUE(store.Update(found, {zero}, {zero}, 42).ok());
  float row[2];
  store.Gather(0, found, row);
  EXPECT_THAT(row, ElementsAre(-0.25f, -1.0f));
  EXPECT_EQ(store.dense(0)[1], -6.0f);
}
// Makes the file of a job without dense tables, with rows of `floats` floats of state. It announces
// `rows` rows and has those of `keys`. Returns the result of restoring it.
absl::Status RestoreRows(GeoParameters* store, uint64_t floats, uint64_t rows,
                         const std::vector<uint64_t>& keys) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/geo_parameters_rows.", getpid());
  std::filesystem::remove_all(dir);
  auto writer = GeoStateWriter::Create(Env::Real(), dir, 0, kGeoParametersSaveId);
  EXPECT_TRUE(writer.ok()) << writer.status();
  std::vector<uint64_t> numbers = {0, 0, floats, rows};  // updates and number of dense tables
  for (const uint64_t key : keys) {
    for (const uint64_t number : {key, uint64_t{4}, uint64_t{2}}) numbers.push_back(number);
  }
  EXPECT_TRUE((*writer)->Append(numbers.data(), numbers.size() * sizeof(uint64_t)).ok());
  const auto file = (*writer)->Finish();
  EXPECT_TRUE(file.ok()) << file.status();
  auto reader = GeoStateReader::Open(Env::Real(), dir, *file);
  EXPECT_TRUE(reader.ok()) << reader.status();
  const absl::Status restored = store->RestoreState(reader->get());
  std::filesystem::remove_all(dir);
  return restored;
}

TEST(GeoParametersTest, AStateThatContradictsItselfOrTheTablesIsDataLoss) {
  const TableLayouts layouts = FakeClient(FakeModel(), 1.0f).tables();
  const TableLayout* const rows = layouts[0].get();
  const auto code = [](const TableLayout* sparse, uint64_t floats, uint64_t announced,
                       const std::vector<uint64_t>& keys) {
    std::vector<const TableLayout*> tables;
    if (sparse != nullptr) tables.push_back(sparse);
    GeoParameters store({}, tables, 100);
    return RestoreRows(&store, floats, announced, keys).code();
  };
  EXPECT_EQ(code(rows, 0, 2, {5, 6}), absl::StatusCode::kOk);
  EXPECT_EQ(code(nullptr, 0, 0, {}), absl::StatusCode::kOk);
  EXPECT_EQ(code(rows, 0, 2, {5, 5}), absl::StatusCode::kDataLoss) << "a key twice";
  EXPECT_EQ(code(rows, 0, 2, {5}), absl::StatusCode::kDataLoss) << "a row is missing";
  EXPECT_EQ(code(rows, 1, 0, {}), absl::StatusCode::kDataLoss) << "SGD has no state";
  EXPECT_EQ(code(nullptr, 0, 1, {5}), absl::StatusCode::kDataLoss) << "no sparse table";
  GeoParameters dense({layouts[1].get()}, {rows}, 100);
  EXPECT_TRUE(absl::IsDataLoss(RestoreRows(&dense, 0, 0, {}))) << "a dense table is missing";
}

TEST(GeoParametersTest, RestoredRowsAreStale) {
  const TableLayouts layouts = FakeClient(FakeModel(), 1.0f).tables();
  GeoParameters store({}, {layouts[0].get()}, 100);
  const absl::Status restored = RestoreRows(&store, 0, 2, {5, 6});
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(store.rows(0), 2u);
  const KeySet keys = Unique(*layouts[0], {5, 6});
  GeoParameters::Found found;
  store.Find({keys}, &found);
  EXPECT_THAT(found[0].pulled, SizeIs(2));
  EXPECT_EQ(found[0].missing.keys, keys.keys);
}

}  // namespace
}  // namespace sluice
