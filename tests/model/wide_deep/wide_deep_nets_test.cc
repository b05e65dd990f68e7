// Tests the networks that a wide_deep job makes.
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "model/built_in_models.h"
#include "model/model.h"
#include "model/net/dense_net.h"
#include "tests/model/wide_deep/spec_for_test.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Model> CreateModel() {
  auto model = Model::Create(Job(std::string(kFeatures) + kModel), BuiltInModels());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

TEST(WideDeepNetsTest, PrecisionsOfTheCpu) {
  const auto model = CreateModel();
  NetOptions options = CpuNet(1, 4);
  for (const MatmulPrecision precision :
       {MatmulPrecision::kJob, MatmulPrecision::kF32, MatmulPrecision::kBf16}) {
    options.precision = precision;
    EXPECT_TRUE(model->CreateNet(options).ok()) << NameOf(precision);
  }
  for (const MatmulPrecision precision : {MatmulPrecision::kTf32, MatmulPrecision::kFp16}) {
    options.precision = precision;
    EXPECT_THAT(std::string(model->CreateNet(options).status().message()),
                HasSubstr("needs a CUDA device"));
  }
}

TEST(WideDeepNetsTest, NetMatchesTheTables) {
  const auto model = CreateModel();
  auto net = model->CreateNet(CpuNet(1, 4));
  ASSERT_TRUE(net.ok()) << net.status();
  Batch batch;
  batch.Reset(model->schema()->numerics().size(), model->schema()->slots().size());
  const std::string_view values[] = {"1", "30", "40", "clerk", "a|b"};
  std::vector<std::string_view> line;
  for (const std::string& column : model->schema()->columns()) {
    line.push_back(column == "label"   ? values[0]
                   : column == "age"   ? values[1]
                   : column == "hours" ? values[2]
                   : column == "job"   ? values[3]
                   : column == "tags"  ? values[4]
                                       : std::string_view());
  }
  std::vector<char> missing(line.size(), 0);
  for (size_t i = 0; i < line.size(); ++i) missing[i] = line[i].empty();
  ASSERT_TRUE(
      model->schema()
          ->AppendExample(line.data(), reinterpret_cast<const bool*>(missing.data()), true, &batch)
          .ok());
  ASSERT_EQ(batch.keys.size(), 3u);
  const std::vector<uint32_t> row_index = {0, 1, 2};
  const std::vector<float> rows(3 * 9, 0.5f);
  std::vector<std::vector<float>> dense;
  NetInput input;
  input.batch = &batch, input.row_index = row_index.data();
  input.rows.resize(1);
  input.rows[0].values = rows.data(), input.rows[0].n = 3;
  for (int t : model->dense_tables()) {
    size_t n = 1;
    for (uint64_t d : model->tables()[t].shape()) n *= d;
    dense.emplace_back(n, 0.0f);
  }
  for (const auto& tensor : dense) input.dense.push_back(tensor.data());
  float logit = 0;
  ASSERT_TRUE((*net)->Forward(input, &logit).ok());
  EXPECT_EQ(logit, 0.5f);  // the wide weight of "clerk": tags are not in_wide, and the rest is zero
}

TEST(WideDeepNetsTest, NetOfDenseFeaturesReadsRowsOfItsTables) {
  auto model = Model::Create(Job(R"(
      name: "job"
      data { format: CSV csv { columns: ["label", "job", "town"] } label { column: "label" } }
      features { name: "job" categorical { vocabulary: ["clerk", "cook"] dense: true } }
      features { name: "town" categorical { vocabulary: ["x", "y"] dense: true } in_deep: false }
      model { wide_deep { hidden_units: 1 embedding_dim: 2 } })"),
                             BuiltInModels());
  ASSERT_TRUE(model.ok()) << model.status();
  auto net = (*model)->CreateNet(CpuNet(1, 4));
  ASSERT_TRUE(net.ok()) << net.status();
  Batch batch;
  batch.Reset(0, 2);
  const std::string_view line[] = {"1", "", "cook", "y"};
  const bool missing[] = {false, true, false, false};
  ASSERT_TRUE((*model)->schema()->AppendExample(line, missing, true, &batch).ok());
  std::map<std::string, std::vector<float>> tables;
  NetInput input;
  input.batch = &batch;
  for (int t : (*model)->dense_tables()) {
    const TableConfig& table = (*model)->tables()[t];
    size_t n = 1;
    for (uint64_t d : table.shape()) n *= d;
    tables[table.name()].resize(n);
  }
  // Rows of "job" in both tables: clerk, cook, others. Then those of "town", in the wide part
  // alone.
  tables["embedding"] = {9, 9, 3, 5, 9, 9};
  tables["wide/embedding"] = {9, 0.25f, 9, 9, 0.5f, 9};
  tables["deep/0/weight"] = {1, 10};
  tables["deep/1/weight"] = {1};
  for (int t : (*model)->dense_tables())
    input.dense.push_back(tables[(*model)->tables()[t].name()].data());
  float logit = 0;
  ASSERT_TRUE((*net)->Forward(input, &logit).ok());
  EXPECT_EQ(logit, 0.25f + 0.5f + 3 + 50);
}

// Users of width 1, items of width 2 that two features share, and towns of the model's width 3.
std::unique_ptr<Model> ModelOfThreeTables() {
  auto model = Model::Create(Job(R"(
      name: "job"
      data {
        format: CSV
        csv { columns: ["label", "user", "shown", "bought", "town"] }
        label { column: "label" }
      }
      features { name: "user" categorical {} embedding_dim: 1 }
      features { name: "shown" categorical {} embedding: "item" embedding_dim: 2 }
      features {
        name: "bought" categorical { multi_value_delimiter: "|" pooling: SUM }
        embedding: "item" embedding_dim: 2
      }
      features { name: "town" categorical {} }
      model { wide_deep { hidden_units: 1 embedding_dim: 3 } })"),
                             BuiltInModels());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

TEST(WideDeepNetsTest, NetOfSeveralTablesReadsTheRowsOfEach) {
  const auto model = ModelOfThreeTables();
  ASSERT_EQ(model->sparse_tables().size(), 3u);
  auto net = model->CreateNet(CpuNet(1, 4));
  ASSERT_TRUE(net.ok()) << net.status();
  Batch batch;
  batch.Reset(0, 4);
  const std::string_view line[] = {"1", "", "u", "i", "i|j", "t"};
  const bool missing[] = {false, true, false, false, false, false};
  const absl::Status appended = model->schema()->AppendExample(line, missing, true, &batch);
  ASSERT_TRUE(appended.ok()) << appended;
  ASSERT_EQ(batch.keys.size(), 5u);
  EXPECT_EQ(batch.keys[1], batch.keys[2]) << "the same item in two features";
  const uint32_t row_index[] = {0, 0, 0, 1, 0};
  // [wide weight][embedding]
  const std::vector<float> rows[] = {{0.5f, 2}, {0.25f, 3, 5, 0.125f, 7, 11}, {1, 13, 17, 19}};
  std::map<std::string, std::vector<float>> dense;
  NetInput input;
  input.batch = &batch;
  input.row_index = row_index;
  for (const auto& table : rows) input.rows.emplace_back().values = table.data();
  input.rows[0].n = input.rows[2].n = 1, input.rows[1].n = 2;
  // Of the user, the item shown, those bought, and the town.
  dense["deep/0/weight"] = {1000, 10, 100, 1, 2, 5, 7, 9};
  dense["deep/0/bias"] = dense["deep/1/bias"] = dense["wide/bias"] = {0};
  dense["deep/1/weight"] = {1};
  for (const int t : model->dense_tables())
    input.dense.push_back(dense[model->tables()[t].name()].data());
  float logit = 0;
  ASSERT_TRUE((*net)->Forward(input, &logit).ok());
  EXPECT_EQ(logit, 0.5f + 0.25f + 0.25f + 0.125f + 1 + 2000 + 30 + 500 + (3 + 7) * 1 +
                       (5 + 11) * 2 + 13 * 5 + 17 * 7 + 19 * 9);
}

TEST(WideDeepNetsTest, SeveralTablesOnACudaDeviceAreRefusedByName) {
  NetOptions options = CpuNet(1, 4);
  options.device.kind = ComputeDevice::kCuda;
  const absl::Status status = ModelOfThreeTables()->CreateNet(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* text : {"embedding_1", "item", "embedding_3", "--device=cpu"})
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

}  // namespace
}  // namespace sluice
