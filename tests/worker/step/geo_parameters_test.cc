#include "worker/step/geo_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

// A store of rows of one weight, with steps on `keys`, a gradient for each, and exchanges.
class OneWeightStore {
 public:
  OneWeightStore(const OptimizerConfig& optimizer, uint64_t max_rows) {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    *tables.Add() = SgdTable("rows", TableConfig::SPARSE, 1, 1.0f);
    *tables[0].mutable_columns(0)->mutable_optimizer() = optimizer;
    layouts_ = *CreateTableLayouts(tables, 1);
    store_ = std::make_unique<GeoParameters>(std::vector<const TableLayout*>(), layouts_[0].get(),
                                             max_rows);
  }
  void Step(const std::vector<uint64_t>& keys, const std::vector<float>& gradients) {
    ASSERT_TRUE(TryStep(keys, gradients).ok());
  }
  absl::Status TryStep(const std::vector<uint64_t>& keys, const std::vector<float>& gradients) {
    const std::vector<uint32_t> index = Find(keys);
    const std::vector<float> zeros(found_.missing.keys.size());
    SLUICE_RETURN_IF_ERROR(store_->Fill(&found_, zeros.data()));
    std::vector<float> by_row(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) by_row[index[i]] = gradients[i];
    SLUICE_RETURN_IF_ERROR(store_->Update(found_, by_row.data(), {}, step_++));
    for (const uint32_t slot : found_.slots) slots_ = std::max(slots_, slot + 1);
    return absl::OkStatus();
  }
  // Returns the deltas, which are under way until Receive.
  std::map<uint64_t, float> Send() {
    KeySet keys;
    EXPECT_TRUE(store_->TakeDelta(&keys, &sent_, &dense_).ok());
    std::map<uint64_t, float> deltas;
    for (size_t i = 0; i < sent_.size(); ++i) deltas[keys.keys[i]] = sent_[i];
    return deltas;
  }
  // The server has 0 everywhere.
  void Receive() {
    std::vector<float> server(sent_.size());
    std::vector<std::vector<float>> server_dense;
    EXPECT_TRUE(store_->Merge(&sent_, &server, &dense_, &server_dense).ok());
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
    return {found_.missing.keys.begin(), found_.missing.keys.end()};
  }
  // Counts a step that uses these rows and updates none.
  HotRowUse Use(const std::vector<uint64_t>& keys) {
    Find(keys);
    const std::vector<float> zeros(found_.missing.keys.size());
    EXPECT_TRUE(store_->Fill(&found_, zeros.data()).ok());
    return store_->Use(found_);
  }
  uint64_t rows() const { return store_->rows(); }
  uint32_t slots() const { return slots_; }

 private:
  // Sets found_. Returns the position of each key in its slots.
  std::vector<uint32_t> Find(const std::vector<uint64_t>& keys) {
    KeySet unique;
    std::vector<uint32_t> index(keys.size());
    dedup_.Run(*layouts_[0], keys.data(), keys.size(), &unique, index.data());
    store_->Find(unique, &found_);
    return index;
  }

  TableLayouts layouts_;
  std::unique_ptr<GeoParameters> store_;
  KeyDeduplicator dedup_;
  GeoParameters::Rows found_;
  std::vector<float> sent_;
  std::vector<std::vector<float>> dense_;  // none
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
  GeoParameters store({layouts[1].get()}, layouts[0].get(), 100);
  KeyDeduplicator dedup;
  KeySet keys;
  GeoParameters::Rows found;
  const uint64_t key = 5;
  uint32_t index;
  dedup.Run(*layouts[0], &key, 1, &keys, &index);
  store.Find(keys, &found);
  const float zero = 0.0f, one[2] = {1.0f, 1.0f};
  ASSERT_TRUE(store.Fill(&found, &zero).ok());
  for (uint64_t step = 0; step < 3; ++step) ASSERT_TRUE(store.Update(found, one, {one}, step).ok());
  float value;
  store.Gather(found, &value);
  EXPECT_EQ(value, -1.75f);  // 1 + 1/2 + 1/4
  EXPECT_EQ(store.dense(0)[1], -1.75f);
}

TEST(GeoParametersTest, MovesMadeAfterTheSendSurviveTheMerge) {
  FakeModel model;
  FakeClient client(model, 1.0f);
  GeoParameters store({client.tables()[1].get()}, client.tables()[0].get(), 100);
  KeyDeduplicator dedup;
  KeySet keys;
  GeoParameters::Rows found;
  const uint64_t key = 5;
  uint32_t index;
  dedup.Run(*client.tables()[0], &key, 1, &keys, &index);
  store.Find(keys, &found);
  ASSERT_EQ(found.missing.keys.size(), 1u);
  const float pulled = 1.0f, one[2] = {1.0f, 1.0f};
  const float nothing[2] = {0.0f, 0.0f};
  ASSERT_TRUE(store.Fill(&found, &pulled).ok());
  ASSERT_TRUE(store.Update(found, one, {nothing}, 0).ok());  // local 0
  KeySet sent;
  std::vector<float> rows;
  std::vector<std::vector<float>> dense;
  ASSERT_TRUE(store.TakeDelta(&sent, &rows, &dense).ok());
  ASSERT_EQ(rows[0], -1.0f);
  // Local becomes -1 while the delta is under way.
  ASSERT_TRUE(store.Update(found, one, {one}, 1).ok());
  std::vector<float> server_rows = {20.0f};
  std::vector<std::vector<float>> server_dense = {{5.0f, 6.0f}};
  ASSERT_TRUE(store.Merge(&rows, &server_rows, &dense, &server_dense).ok());
  float value;
  store.Gather(found, &value);
  EXPECT_EQ(value, 19.0f);  // server 20, one move of -1
  EXPECT_EQ(store.dense(0)[0], 4.0f);
  ASSERT_TRUE(store.TakeDelta(&sent, &rows, &dense).ok());
  EXPECT_EQ(rows[0], -1.0f);  // the move, not the delta that was sent
  EXPECT_EQ(dense[0][1], -1.0f);
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
  KeySet none;
  KeyDeduplicator().Run(*layouts[0], nullptr, 0, &none, nullptr);
  GeoParameters store({layouts[1].get()}, layouts[0].get(), 100);
  GeoParameters::Rows found;
  found.missing.keys = {9};  // of an earlier batch
  store.Find(none, &found);
  EXPECT_THAT(found.missing.keys, IsEmpty());
  EXPECT_THAT(found.missing.offsets, SizeIs(layouts[0]->num_shards() + 1));
  EXPECT_THAT(found.missing.offsets, Each(0u));
  ASSERT_TRUE(store.Fill(&found, nullptr).ok());
  EXPECT_EQ(store.Use(found).misses(), 0u);
  KeySet sent;
  sent.keys = {9};  // of an earlier exchange
  std::vector<float> rows = {9};
  std::vector<std::vector<float>> dense;
  ASSERT_TRUE(store.TakeDelta(&sent, &rows, &dense).ok());
  EXPECT_THAT(sent.keys, IsEmpty());
  EXPECT_THAT(sent.offsets, SizeIs(layouts[0]->num_shards() + 1));
  EXPECT_THAT(rows, IsEmpty());
  EXPECT_THAT(dense, ElementsAre(ElementsAre(0.0f, 0.0f)));
}

TEST(GeoParametersTest, AModelWithoutASparseTableSendsItsDenseMovesAlone) {
  const TableLayouts layouts = FakeClient(FakeModel(), 1.0f).tables();
  GeoParameters store({layouts[1].get()}, nullptr, 100);
  const std::vector<float> start = {3, 4}, gradient = {1, 2};
  ASSERT_TRUE(store.SetDense({start.data()}).ok());
  ASSERT_TRUE(store.Update(GeoParameters::Rows(), nullptr, {gradient.data()}, 0).ok());
  KeySet sent;
  sent.keys = {9};
  std::vector<float> rows, server_rows;
  std::vector<std::vector<float>> dense, server_dense = {{10.0f, 20.0f}};
  ASSERT_TRUE(store.TakeDelta(&sent, &rows, &dense).ok());
  EXPECT_THAT(sent.keys, IsEmpty());
  EXPECT_THAT(rows, IsEmpty());
  EXPECT_THAT(dense, ElementsAre(ElementsAre(-1.0f, -2.0f)));
  ASSERT_TRUE(store.Merge(&rows, &server_rows, &dense, &server_dense).ok());
  EXPECT_EQ(std::vector<float>(store.dense(0), store.dense(0) + 2), (std::vector<float>{10, 20}));
}

// Adam's moments and the counts of its bias correction decide the next moves.
TEST(GeoParametersTest, RestoredStateMakesTheSameMoves) {
  google::protobuf::RepeatedPtrField<TableConfig> configs;
  *configs.Add() = SgdTable("rows", TableConfig::SPARSE, 3, 0.1f);
  *configs.Add() = SgdTable("dense", TableConfig::DENSE, 5, 0.1f);
  for (OptimizerConfig* optimizer : {configs.Mutable(0)->mutable_columns(0)->mutable_optimizer(),
                                     configs.Mutable(1)->mutable_optimizer()}) {
    optimizer->mutable_adam()->set_beta1(0.9);
    optimizer->mutable_adam()->set_beta2(0.99);
    optimizer->mutable_adam()->set_epsilon(1e-8);
  }
  const TableLayouts layouts = *CreateTableLayouts(configs, 1);
  const std::vector<const TableLayout*> dense = {layouts[1].get()};
  KeyDeduplicator dedup;
  const auto step = [&](GeoParameters* parameters, const std::vector<uint64_t>& keys,
                        std::map<uint64_t, std::vector<float>>* values, float gradient,
                        uint64_t schedule_step) {
    KeySet set;
    std::vector<uint32_t> index(keys.size());
    dedup.Run(*layouts[0], keys.data(), keys.size(), &set, index.data());
    GeoParameters::Rows found;
    parameters->Find(set, &found);
    std::vector<float> pulled;
    for (const uint64_t key : found.missing.keys) {
      std::vector<float>& row = (*values)[key];
      row.resize(3);
      pulled.insert(pulled.end(), row.begin(), row.end());
    }
    ASSERT_TRUE(parameters->Fill(&found, pulled.data()).ok());
    const std::vector<float> rows(3 * set.keys.size(), gradient), tensor(5, gradient);
    ASSERT_TRUE(parameters->Update(found, rows.data(), {tensor.data()}, schedule_step).ok());
    std::vector<float> now(rows.size());
    parameters->Gather(found, now.data());
    for (size_t i = 0; i < set.keys.size(); ++i)
      (*values)[set.keys[i]].assign(now.begin() + 3 * i, now.begin() + 3 * i + 3);
  };

  GeoParameters one(dense, layouts[0].get(), 100);
  std::map<uint64_t, std::vector<float>> values;
  const std::vector<float> start = {1, 2, 3, 4, 5};
  ASSERT_TRUE(one.SetDense({start.data()}).ok());
  for (uint64_t i = 0; i < 7; ++i) step(&one, {i % 3, 100 + i}, &values, 0.3f * (i + 1), i);
  const std::string dir = absl::StrCat(testing::TempDir(), "/geo_parameters_test.", getpid());
  auto writer = GeoStateWriter::Create(Env::Real(), dir, 0, kGeoParametersSaveId);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(one.SaveState(writer->get()).ok());
  const auto file = (*writer)->Finish();
  ASSERT_TRUE(file.ok()) << file.status();

  GeoParameters other(dense, layouts[0].get(), 100);
  std::map<uint64_t, std::vector<float>> other_values = values;
  ASSERT_TRUE(other.SetDense({one.dense(0)}).ok());
  auto reader = GeoStateReader::Open(Env::Real(), dir, *file);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const absl::Status restored = other.RestoreState(reader->get());
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_TRUE((*reader)->Finish().ok());
  EXPECT_EQ(other.rows(), one.rows());
  for (uint64_t i = 0; i < 5; ++i) {
    step(&one, {i % 3, 104, 500 + i}, &values, -0.2f, 7 + i);
    step(&other, {i % 3, 104, 500 + i}, &other_values, -0.2f, 7 + i);
  }
  EXPECT_EQ(other_values, values);
  EXPECT_EQ(std::vector<float>(other.dense(0), other.dense(0) + 5),
            std::vector<float>(one.dense(0), one.dense(0) + 5));

  // A file of other tables.
  configs.RemoveLast();
  const TableLayouts fewer = *CreateTableLayouts(configs, 1);
  GeoParameters without({}, fewer[0].get(), 100);
  reader = GeoStateReader::Open(Env::Real(), dir, *file);
  EXPECT_TRUE(absl::IsDataLoss(without.RestoreState(reader->get())));
  std::filesystem::remove_all(dir);
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
    GeoParameters store({}, sparse, 100);
    return RestoreRows(&store, floats, announced, keys).code();
  };
  EXPECT_EQ(code(rows, 0, 2, {5, 6}), absl::StatusCode::kOk);
  EXPECT_EQ(code(nullptr, 0, 0, {}), absl::StatusCode::kOk);
  EXPECT_EQ(code(rows, 0, 2, {5, 5}), absl::StatusCode::kDataLoss) << "a key twice";
  EXPECT_EQ(code(rows, 0, 2, {5}), absl::StatusCode::kDataLoss) << "a row is missing";
  EXPECT_EQ(code(rows, 1, 0, {}), absl::StatusCode::kDataLoss) << "SGD has no state";
  EXPECT_EQ(code(nullptr, 0, 1, {5}), absl::StatusCode::kDataLoss) << "no sparse table";
  GeoParameters dense({layouts[1].get()}, rows, 100);
  EXPECT_TRUE(absl::IsDataLoss(RestoreRows(&dense, 0, 0, {}))) << "a dense table is missing";
}

TEST(GeoParametersTest, RestoredRowsAreStale) {
  const TableLayouts layouts = FakeClient(FakeModel(), 1.0f).tables();
  GeoParameters store({}, layouts[0].get(), 100);
  const absl::Status restored = RestoreRows(&store, 0, 2, {5, 6});
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(store.rows(), 2u);
  KeySet keys;
  const std::vector<uint64_t> wanted = {5, 6};
  std::vector<uint32_t> index(2);
  KeyDeduplicator().Run(*layouts[0], wanted.data(), 2, &keys, index.data());
  GeoParameters::Rows found;
  store.Find(keys, &found);
  EXPECT_THAT(found.pulled, SizeIs(2));
  EXPECT_EQ(found.missing.keys, keys.keys);
}

}  // namespace
}  // namespace sluice
