#include "model/model.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "model/net/dense_net.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFeatures[] = R"(
  name: "job"
  data { format: CSV csv { columns: ["label", "age", "hours", "job", "tags"] } label { column: "label" } }
  features { name: "age" numeric {} }
  features { name: "hours" numeric {} in_wide: false }
  features { name: "job" categorical {} }
  features { name: "tags" categorical { multi_value_delimiter: "|" pooling: MEAN } in_wide: false }
)";
constexpr char kModel[] = "model { wide_deep { hidden_units: [16, 4] embedding_dim: 8 } }";

JobConfig Job(const std::string& text) {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return job;
}

std::unique_ptr<Model> Create(const std::string& more) {
  auto model = Model::Create(Job(std::string(kFeatures) + more));
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::string Error(const std::string& text) {
  const absl::Status status = Model::Create(Job(text)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::string OverrideError(const std::string& more) {
  return Error(std::string(kFeatures) + kModel + more);
}

std::vector<std::string> Names(const Model& model) {
  std::vector<std::string> names;
  for (const TableConfig& table : model.tables()) names.push_back(table.name());
  return names;
}

const TableConfig& Table(const Model& model, const std::string& name) {
  for (const TableConfig& table : model.tables()) {
    if (table.name() == name) return table;
  }
  ADD_FAILURE() << "no table " << name;
  return model.tables()[0];
}

TEST(ModelTest, DerivesTablesFromFeatures) {
  const auto model = Create(kModel);
  EXPECT_THAT(Names(*model), ElementsAre("embedding", "deep/0/weight", "deep/0/bias",
                                         "deep/1/weight", "deep/1/bias", "deep/2/weight",
                                         "deep/2/bias", "wide/weight", "wide/bias"));
  EXPECT_EQ(model->sparse_table(), 0);
  EXPECT_THAT(model->dense_tables(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(Table(*model, "deep/0/weight").shape(), ElementsAre(2 * 8 + 2, 16));
  EXPECT_THAT(Table(*model, "deep/2/weight").shape(), ElementsAre(4, 1));
  EXPECT_THAT(Table(*model, "wide/weight").shape(), ElementsAre(1));  // only age is in_wide
  const TableConfig& sparse = Table(*model, "embedding");
  EXPECT_EQ(sparse.kind(), TableConfig::SPARSE);
  ASSERT_EQ(sparse.columns_size(), 2);
  EXPECT_EQ(sparse.columns(0).name(), "wide");
  EXPECT_EQ(sparse.columns(0).dim(), 1);
  EXPECT_EQ(sparse.columns(1).name(), "embedding");
  EXPECT_EQ(sparse.columns(1).dim(), 8);
}

TEST(ModelTest, WhatNoPartUsesIsNoSlotButStillServesCrosses) {
  const std::string more = R"(
    features { name: "town" categorical { column: "job" } in_deep: false }
    features { name: "years" numeric { column: "age" boundaries: 30 } in_deep: false }
    features { name: "job_x_years" in_wide: false cross { features: ["town", "years"] } }
  )";
  const auto names = [](const Model& model) {
    std::vector<std::string> slots;
    for (const FeatureSchema::Slot& slot : model.schema()->slots()) slots.push_back(slot.name);
    return slots;
  };
  const auto deep = Create(
      more + "model { wide_deep { hidden_units: 4 embedding_dim: 8 wide_categorical: false } }");
  EXPECT_THAT(names(*deep), ElementsAre("job", "tags", "job_x_years"));
  EXPECT_FALSE(deep->schema()->slots()[0].in_wide);
  EXPECT_THAT(Table(*deep, "deep/0/weight").shape(), ElementsAre(3 * 8 + 2, 4));
  // Without the deep part nothing would read what is not in_wide.
  const std::string features = kFeatures;
  EXPECT_THAT(Error(features + "model { wide_deep {} }"), HasSubstr("\"hours\""));
  EXPECT_THAT(Error(features + "model { wide_deep { wide_categorical: false } }"),
              HasSubstr("has no effect"));

  // The part of a cross keeps its key, and the example has the keys of slots only.
  Batch batch;
  batch.Reset(deep->schema()->numerics().size(), deep->schema()->slots().size());
  std::vector<std::string_view> values;
  for (const std::string& column : deep->schema()->columns())
    values.push_back(column == "label" ? "1" : column.empty() ? "" : "7");
  const std::vector<char> missing(values.size(), 0);
  ASSERT_TRUE(deep->schema()
                  ->AppendExample(values.data(), reinterpret_cast<const bool*>(missing.data()),
                                  true, &batch)
                  .ok());
  EXPECT_EQ(batch.keys.size(), 3u);
}

TEST(ModelTest, InitialValuesAreTheDocumentedOnes) {
  const auto model = Create(kModel);
  EXPECT_EQ(Table(*model, "deep/0/weight").initializer().he_uniform().fan_in(), 18u);
  EXPECT_EQ(Table(*model, "deep/2/weight").initializer().he_uniform().fan_in(), 4u);
  for (const char* zero : {"deep/0/bias", "deep/2/bias", "wide/weight", "wide/bias"}) {
    EXPECT_EQ(Table(*model, zero).initializer().kind_case(), Initializer::kConstant) << zero;
    EXPECT_EQ(Table(*model, zero).initializer().constant(), 0) << zero;
  }
  const TableConfig& sparse = Table(*model, "embedding");
  EXPECT_EQ(sparse.columns(0).initializer().kind_case(), Initializer::kConstant);
  EXPECT_EQ(sparse.columns(1).initializer().uniform().min(), -0.05f);
  EXPECT_EQ(sparse.columns(1).initializer().uniform().max(), 0.05f);
  const auto normal = Create(
      "model { wide_deep { hidden_units: 4 embedding_dim: 8 embedding_initializer { normal { "
      "stddev: 0.5 } } } }");
  EXPECT_EQ(Table(*normal, "embedding").columns(1).initializer().normal().stddev(), 0.5f);
}

TEST(ModelTest, OptimizersFallBackToAllThenToAdam) {
  const auto plain = Create(kModel);
  for (const TableConfig& table : plain->tables()) {
    const OptimizerConfig& o =
        table.kind() == TableConfig::DENSE ? table.optimizer() : table.columns(1).optimizer();
    EXPECT_EQ(o.rule_case(), OptimizerConfig::kAdam) << table.name();
    EXPECT_EQ(o.learning_rate(), 0.001f);
  }
  const auto mixed =
      Create(std::string(kModel) + "optimizers { all { sgd {} } wide { ftrl { l1: 2 } } }");
  EXPECT_EQ(Table(*mixed, "embedding").columns(0).optimizer().ftrl().l1(), 2);
  EXPECT_EQ(Table(*mixed, "embedding").columns(0).optimizer().learning_rate(), 0.05f);
  EXPECT_EQ(Table(*mixed, "embedding").columns(1).optimizer().rule_case(), OptimizerConfig::kSgd);
  EXPECT_EQ(Table(*mixed, "wide/weight").optimizer().rule_case(), OptimizerConfig::kSgd);
}

TEST(ModelTest, LearningRatesScaleByWorkersWhenAsked) {
  const std::string optimizers = "worker_num: 4 optimizers { all { sgd {} learning_rate: 0.5 } ";
  EXPECT_EQ(Table(*Create(std::string(kModel) + optimizers + "}"), "wide/bias")
                .optimizer()
                .learning_rate(),
            0.5f);
  const auto scaled = Create(std::string(kModel) + optimizers + "lr_scale: WORKERS }");
  EXPECT_EQ(Table(*scaled, "wide/bias").optimizer().learning_rate(), 2.0f);
  EXPECT_EQ(Table(*scaled, "embedding").columns(0).optimizer().learning_rate(), 2.0f);
}

TEST(ModelTest, GeoUpdatesAtTheWorker) {
  const auto geo =
      Create(std::string(kModel) + "strategy { a_sync: true a_sync_configs { k_steps: 5 } }");
  for (const TableConfig& table : geo->tables()) EXPECT_EQ(table.update_at(), TableConfig::WORKER);
  const auto async = Create(kModel);
  for (const TableConfig& table : async->tables())
    EXPECT_EQ(table.update_at(), TableConfig::PSERVER);
}

TEST(ModelTest, WideOnlyHasNoEmbeddingColumns) {
  const std::string in_both =
      absl::StrReplaceAll(kFeatures, {{" in_wide: false", ""}}) + "model { wide_deep {} }";
  const auto model = *Model::Create(Job(in_both));
  EXPECT_THAT(Names(*model), ElementsAre("embedding", "wide/weight", "wide/bias"));
  EXPECT_EQ(Table(*model, "embedding").columns_size(), 1);
}

TEST(ModelTest, DeepOnlyHasNoWideTables) {
  const auto model = Create(
      "model { wide_deep { wide_numeric: false wide_categorical: false hidden_units: 4 "
      "embedding_dim: 2 } }");
  EXPECT_THAT(Names(*model), ElementsAre("embedding", "deep/0/weight", "deep/0/bias",
                                         "deep/1/weight", "deep/1/bias"));
  EXPECT_EQ(Table(*model, "embedding").columns(0).name(), "embedding");
}

TEST(ModelTest, NumbersAloneNeedNoSparseTable) {
  auto model =
      Model::Create(Job(R"(data { format: CSV csv { columns: ["y", "x"] } label { column: "y" } }
    features { name: "x" numeric {} } model { wide_deep { hidden_units: 4 } })"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->sparse_table(), -1);
  EXPECT_THAT((*model)->dense_tables(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(ModelTest, RefusesWhatCannotBeAModel) {
  const std::string f = kFeatures;
  EXPECT_THAT(Error(f), HasSubstr("no model is set"));
  EXPECT_THAT(Error(f + "model { wide_deep { hidden_units: 4 } }"), HasSubstr("embedding_dim"));
  EXPECT_THAT(Error(f + "model { wide_deep { hidden_units: [4, 0] embedding_dim: 2 } }"),
              HasSubstr("0 units"));
  EXPECT_THAT(Error(f + "model { wide_deep { hidden_units: 4 embedding_dim: 2 dropout: 1 } }"),
              HasSubstr("dropout"));
  EXPECT_THAT(Error(f + "model { wide_deep { wide_numeric: false wide_categorical: false } }"),
              HasSubstr("no part is left"));
  EXPECT_THAT(Error(f + kModel +
                    "features { name: \"z\" categorical { column: \"job\" } embedding_dim: 9 }"),
              HasSubstr("\"z\" has embedding_dim 9, but model.wide_deep.embedding_dim is 8"));
}

// -----------------------------------------------------------------------------------------
// overrides

TEST(ModelTest, OverridesChangeWhatTheySet) {
  const auto model = Create(std::string(kModel) + R"(
    tables { name: "embedding" num_shards: 7 wire_type: BF16
             columns { name: "embedding" initializer { constant: 0.5 } optimizer { learning_rate: 0.25 } } }
    tables { name: "deep/0/bias" shape: 16 kind: DENSE optimizer { sgd {} } }
    optimizers { all { adagrad {} } })");
  const TableConfig& sparse = Table(*model, "embedding");
  EXPECT_EQ(sparse.num_shards(), 7u);
  EXPECT_EQ(sparse.wire_type(), TableConfig::BF16);
  EXPECT_EQ(sparse.columns(1).initializer().constant(), 0.5f);
  EXPECT_EQ(sparse.columns(1).optimizer().rule_case(), OptimizerConfig::kAdagrad);
  EXPECT_EQ(sparse.columns(1).optimizer().learning_rate(), 0.25f);
  EXPECT_EQ(sparse.columns(0).optimizer().learning_rate(), 0.01f);
  EXPECT_EQ(Table(*model, "deep/0/bias").optimizer().rule_case(), OptimizerConfig::kSgd);
  EXPECT_EQ(Table(*model, "deep/0/bias").optimizer().learning_rate(), 0.01f);
}

TEST(ModelTest, OverridesOfTheModelsShapeAreRefused) {
  EXPECT_THAT(OverrideError("tables { name: \"wide\" }"),
              HasSubstr("no such table; it has embedding, deep/0/weight, deep/0/bias"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" kind: DENSE }"),
              HasSubstr("kind DENSE is not the model's"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" shape: 17 }"),
              HasSubstr("shape [17] is not the model's [16]"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" num_shards: 2 }"),
              HasSubstr("num_shards"));
  EXPECT_THAT(OverrideError("tables { name: \"deep/0/bias\" columns { name: \"x\" } }"),
              HasSubstr("no columns"));
  EXPECT_THAT(
      OverrideError("tables { name: \"embedding\" columns { name: \"embedding\" dim: 9 } }"),
      HasSubstr("dim 9 is not the model's 8"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" columns { name: \"deep\" } }"),
              HasSubstr("it has wide, embedding"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" optimizer { sgd {} } }"),
              HasSubstr("into columns"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" shape: 4 }"), HasSubstr("no shape"));
  EXPECT_THAT(OverrideError("tables { name: \"wide/bias\" } tables { name: \"wide/bias\" }"),
              HasSubstr("given twice"));
  EXPECT_THAT(
      OverrideError(
          "tables { name: \"embedding\" columns { name: \"wide\" } columns { name: \"wide\" } }"),
      HasSubstr("given twice"));
}

TEST(ModelTest, WireAndPlaceOfUpdateMustFitTheMode) {
  const std::string geo = "strategy { a_sync_configs { k_steps: 5 } }";
  EXPECT_THAT(OverrideError(geo + "tables { name: \"embedding\" wire_type: BF16 }"),
              HasSubstr("use F32"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" update_at: WORKER }"),
              HasSubstr("this job is async"));
  EXPECT_THAT(OverrideError("tables { name: \"embedding\" update_at: COLLECTIVE }"),
              HasSubstr("reserved"));
}

// ----------------------------------------------------------------------------------------------
// parts

TEST(ModelTest, PrecisionsOfTheCpu) {
  const auto model = Create(kModel);
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

TEST(ModelTest, NetMatchesTheTables) {
  const auto model = Create(kModel);
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
  input.batch = &batch, input.row_index = row_index.data(), input.rows = rows.data(),
  input.num_rows = 3;
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

TEST(ModelTest, ShardsOfSparseTablesFollowThePservers) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  for (int i = 0; i < 3; ++i)
    tables.Add()->set_kind(i == 1 ? TableConfig::DENSE : TableConfig::SPARSE);
  tables[2].set_num_shards(3);
  ResolveShards(2, &tables);
  EXPECT_EQ(tables[0].num_shards(), 16u);
  EXPECT_EQ(tables[1].num_shards(), 0u);
  EXPECT_EQ(tables[2].num_shards(), 3u);
  tables[0].set_num_shards(0);
  ResolveShards(9, &tables);
  EXPECT_EQ(tables[0].num_shards(), 36u);
}

}  // namespace
}  // namespace sluice
