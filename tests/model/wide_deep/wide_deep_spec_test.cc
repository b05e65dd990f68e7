#include "model/wide_deep/wide_deep_spec.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "common/config/config_problem.h"
#include "gmock/gmock.h"
#include "tests/model/wide_deep/spec_for_test.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

TEST(WideDeepSpecTest, DerivesTablesFromFeatures) {
  const auto model = Create(kModel);
  EXPECT_THAT(Names(*model), ElementsAre("embedding", "deep/0/weight", "deep/0/bias",
                                         "deep/1/weight", "deep/1/bias", "deep/2/weight",
                                         "deep/2/bias", "wide/weight", "wide/bias"));
  EXPECT_THAT(model->sparse_tables(), ElementsAre(0));
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

constexpr char kSeveralTables[] = R"(
  name: "job"
  data { format: CSV csv { columns: ["label", "user", "item", "bought", "city", "day"] } label { column: "label" } }
  features { name: "city" categorical {} }
  features { name: "item" embedding: "item" embedding_dim: 16 categorical {} }
  features { name: "bought" embedding: "item" embedding_dim: 16 in_wide: false categorical { multi_value_delimiter: "|" } }
  features { name: "user" key: RAW embedding_dim: 4 in_wide: false categorical {} }
  features { name: "day" table: "days" in_deep: false categorical {} }
)";

TEST(WideDeepSpecTest, FeaturesOfSeveralWidthsHaveSeveralSparseTables) {
  const auto made = ModelSpec::Create(Job(std::string(kSeveralTables) + kModel), BuiltInSpecs());
  ASSERT_TRUE(made.ok()) << made.status();
  const ModelSpec& model = **made;
  // Sparse tables come first.
  EXPECT_THAT(model.sparse_tables(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(std::vector<int>(model.dense_tables().begin(), model.dense_tables().begin() + 2),
              ElementsAre(4, 5));
  std::vector<std::string> rows;
  for (const int t : model.sparse_tables()) {
    const TableConfig& table = model.tables()[t];
    EXPECT_EQ(table.kind(), TableConfig::SPARSE);
    rows.push_back(table.name());
    for (const ColumnGroup& group : table.columns())
      rows.push_back(group.name() + "=" + std::to_string(group.dim()));
  }
  // The wide part reads no row of "user", and the deep part none of "days".
  EXPECT_THAT(rows, ElementsAre("embedding", "wide=1", "embedding=8", "item", "wide=1",
                                "embedding=16", "user", "embedding=4", "days", "wide=1"));
  EXPECT_THAT(Table(model, "deep/0/weight").shape(), ElementsAre(8 + 16 + 16 + 4, 16));

  const auto& spec = static_cast<const WideDeepSpec&>(model);
  EXPECT_THAT(spec.shape().embedding_dims, ElementsAre(8, 16, 4, 0));
  EXPECT_THAT(spec.shape().wide_columns, ElementsAre(true, true, false, true));
  std::vector<uint32_t> tables, of_schema;
  for (const WideDeepShape::Slot& slot : spec.shape().slots) tables.push_back(slot.table);
  for (const FeatureSchema::Slot& slot : model.schema()->slots()) of_schema.push_back(slot.table);
  EXPECT_THAT(tables, ElementsAre(0, 1, 1, 2, 3));
  EXPECT_EQ(tables, of_schema);
}

// Jobs of one width keep their single table, whatever else their features say.
TEST(WideDeepSpecTest, OneWidthKeepsItsTable) {
  for (const char* more :
       {"features { name: 'z' categorical { column: 'job' } in_deep: false }",
        "features { name: 'z' categorical { column: 'job' } in_wide: false embedding_dim: 8 }",
        "features { name: 'z' categorical { column: 'job' } embedding: 'job' }"}) {
    const auto model = Create(std::string(kModel) + more);
    EXPECT_THAT(model->sparse_tables(), ElementsAre(0)) << more;
    const TableConfig& sparse = Table(*model, "embedding");
    ASSERT_EQ(sparse.columns_size(), 2);
    EXPECT_EQ(sparse.columns(1).dim(), 8);
  }
}

TEST(WideDeepSpecTest, OnlyTheWidthsOfFeaturesAreNeeded) {
  const std::string own = absl::StrReplaceAll(
      kSeveralTables, {{"\"city\" categorical", "\"city\" embedding_dim: 2 categorical"},
                       {"\"days\"", "\"days\" embedding_dim: 2"}});
  const auto model =
      ModelSpec::Create(Job(own + "model { wide_deep { hidden_units: 4 } }"), BuiltInSpecs());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Table(**model, "deep/0/weight").shape(), ElementsAre(2 + 16 + 16 + 4, 4));
}

// Files are named after tables, with '.' for '/'.
TEST(WideDeepSpecTest, SparseTablesWithTheFilesOfDenseOnesAreRefused) {
  const auto status_of = [](const std::string& feature) {
    return ModelSpec::Create(Job(std::string(kFeatures) + kModel + "features { " + feature + " }"),
                             BuiltInSpecs())
        .status();
  };
  for (const char* name : {"deep.0.weight", "wide.bias"}) {
    const std::string quoted = std::string("'") + name + "'";
    for (const auto& [feature, field] : std::vector<std::pair<std::string, std::string>>{
             {"name: 'z' categorical { column: 'job' } table: " + quoted, "features[4].table"},
             {"name: 'z' categorical { column: 'job' } embedding_dim: 2 embedding: " + quoted,
              "features[4].embedding"},
             {"categorical { column: 'job' } key: RAW name: " + quoted, "features[4].name"}}) {
      const absl::Status status = status_of(feature);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << feature;
      EXPECT_EQ(FieldOf(status), field) << status;
      EXPECT_THAT(
          std::string(status.message()),
          testing::AllOf(HasSubstr(name), HasSubstr(absl::StrReplaceAll(name, {{".", "/"}}))));
    }
  }
  // The model has no such layer.
  EXPECT_TRUE(status_of("name: 'z' categorical { column: 'job' } table: 'deep.7.bias'").ok());
}

TEST(WideDeepSpecTest, OnlyTheDeepPartNeedsWidths) {
  const auto model = ModelSpec::Create(
      Job(absl::StrReplaceAll(kSeveralTables, {{"\"city\" cat", "\"city\" in_deep: false cat"}}) +
          "model { wide_deep { hidden_units: 4 } }"),
      BuiltInSpecs());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Table(**model, "deep/0/weight").shape(), ElementsAre(16 + 16 + 4, 4));
  EXPECT_THAT((*model)->sparse_tables(), ElementsAre(0, 1, 2));
}

TEST(WideDeepSpecTest, AWideModelWithRawKeysHasRowsOfOneWeight) {
  const auto model =
      ModelSpec::Create(Job(absl::StrReplaceAll(kSeveralTables, {{" in_wide: false", ""}}) +
                            "model { wide_deep {} }"),
                        BuiltInSpecs());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Names(**model), ElementsAre("embedding", "user", "days", "wide/bias"));
  EXPECT_EQ(Table(**model, "user").columns_size(), 1);
}

TEST(WideDeepSpecTest, InputsAreOrderedAsTheDenseWeightsAre) {
  EXPECT_THAT(
      Create(kModel)->ordered_inputs(),
      ElementsAre(Pair("deep", ElementsAre("the embedding of \"job\"", "the embedding of \"tags\"",
                                           "the number of \"age\"", "the number of \"hours\"")),
                  Pair("wide", ElementsAre("the number of \"age\""))));
}

TEST(WideDeepSpecTest, RowsOfTheFirstLayerBelongToItsInputs) {
  const auto model = Create(kModel);
  const auto tables = *model->input_tables();
  std::vector<std::string> rows;
  for (const auto& [table, inputs] : tables) {
    uint64_t sum = 0;
    for (const auto& input : inputs.inputs) {
      rows.push_back(absl::StrCat(table, " ", input.feature, " ", input.rows));
      sum += input.rows;
    }
    EXPECT_EQ(sum, Table(*model, table).shape(0));
  }
  EXPECT_THAT(rows,
              ElementsAre("deep/0/weight job 8", "deep/0/weight tags 8", "deep/0/weight age 1",
                          "deep/0/weight hours 1", "wide/weight age 1"));
}

TEST(WideDeepSpecTest, UnusedFeaturesHaveNoSlotButStillServeCrosses) {
  const std::string more = R"(
    features { name: "town" categorical { column: "job" } in_deep: false }
    features { name: "years" numeric { column: "age" boundaries: 30 } in_deep: false }
    features { name: "job_x_years" in_wide: false cross { features: ["town", "years"] } }
  )";
  const auto names = [](const ModelSpec& model) {
    std::vector<std::string> slots;
    for (const FeatureSchema::Slot& slot : model.schema()->slots()) slots.push_back(slot.name);
    return slots;
  };
  const auto deep = Create(
      more + "model { wide_deep { hidden_units: 4 embedding_dim: 8 wide_categorical: false } }");
  EXPECT_THAT(names(*deep), ElementsAre("job", "tags", "job_x_years"));
  EXPECT_FALSE(deep->schema()->slots()[0].in_wide);
  EXPECT_THAT(Table(*deep, "deep/0/weight").shape(), ElementsAre(3 * 8 + 2, 4));
  // Without the deep part nothing would read a feature that is not in_wide.
  const std::string features = kFeatures;
  EXPECT_THAT(Error(features + "model { wide_deep {} }"), HasSubstr("\"hours\""));
  EXPECT_THAT(Error(features + "model { wide_deep { wide_categorical: false } }"),
              HasSubstr("has no effect"));

  // A feature that only serves a cross has no slot, so the example has no key of it.
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

TEST(WideDeepSpecTest, InitialValuesAreTheDocumentedOnes) {
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

constexpr char kDenseFeatures[] = R"(
  name: "job"
  data { format: CSV csv { columns: ["label", "age", "job", "city"] } label { column: "label" } }
  features { name: "age" numeric { boundaries: [30, 60] dense: true } in_wide: false }
  features { name: "job" categorical { vocabulary: ["a", "b"] dense: true } }
  features { name: "city" categorical { hash_buckets: 50 dense: true } in_deep: false }
)";

std::unique_ptr<ModelSpec> CreateDense(const std::string& more) {
  auto model = ModelSpec::Create(Job(std::string(kDenseFeatures) + more), BuiltInSpecs());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// age has 3 rows (deep part), job 3 (both parts) and city 50 (wide part).
TEST(WideDeepSpecTest, DenseFeaturesHaveDenseTablesInTheNetworksOrder) {
  const auto model = CreateDense(kModel);
  EXPECT_THAT(model->sparse_tables(), IsEmpty());
  EXPECT_THAT(Names(*model), ElementsAre("embedding", "wide/embedding", "deep/0/weight",
                                         "deep/0/bias", "deep/1/weight", "deep/1/bias",
                                         "deep/2/weight", "deep/2/bias", "wide/bias"));
  EXPECT_THAT(model->dense_tables(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(Table(*model, "embedding").shape(), ElementsAre(6, 8));
  EXPECT_THAT(Table(*model, "wide/embedding").shape(), ElementsAre(53, 1));
}

TEST(WideDeepSpecTest, PartsThatUseNoDenseFeatureHaveNoTableOfThem) {
  const std::string no_city = absl::StrReplaceAll(kDenseFeatures, {{"in_deep: false", ""}});
  const auto deep = ModelSpec::Create(
      Job(no_city +
          "model { wide_deep { hidden_units: 4 embedding_dim: 8 wide_categorical: false } }"),
      BuiltInSpecs());
  ASSERT_TRUE(deep.ok()) << deep.status();
  EXPECT_THAT(Table(**deep, "embedding").shape(), ElementsAre(56, 8));
  EXPECT_THAT(Names(**deep), Not(Contains("wide/embedding")));
  const std::string no_age = absl::StrReplaceAll(kDenseFeatures, {{"in_wide: false", ""}});
  const auto wide = ModelSpec::Create(Job(no_age + "model { wide_deep { wide_numeric: false } }"),
                                      BuiltInSpecs());
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_THAT(Names(**wide), ElementsAre("wide/embedding"));
  EXPECT_THAT(Table(**wide, "wide/embedding").shape(), ElementsAre(56, 1));
}

TEST(WideDeepSpecTest, DenseFeaturesHaveTheOptimizersAndInitialValuesOfTheirColumns) {
  const auto model = CreateDense(
      "model { wide_deep { hidden_units: 4 embedding_dim: 8 embedding_initializer { normal { "
      "stddev: 0.5 } } } } optimizers { all { sgd {} } wide { ftrl { l1: 2 } } embedding { adagrad "
      "{} } }");
  EXPECT_EQ(Table(*model, "embedding").optimizer().rule_case(), OptimizerConfig::kAdagrad);
  EXPECT_EQ(Table(*model, "embedding").initializer().normal().stddev(), 0.5f);
  EXPECT_EQ(Table(*model, "wide/embedding").optimizer().ftrl().l1(), 2);
  EXPECT_EQ(Table(*model, "wide/embedding").initializer().kind_case(), Initializer::kConstant);
  EXPECT_EQ(Table(*model, "deep/0/weight").optimizer().rule_case(), OptimizerConfig::kSgd);
  const auto plain = CreateDense(kModel);
  EXPECT_EQ(Table(*plain, "embedding").initializer().uniform().max(), 0.05f);
}

TEST(WideDeepSpecTest, DenseFeaturesNeedNoSparseTableForCollectiveTraining) {
  const auto model = CreateDense(std::string(kModel) +
                                 "strategy { a_sync: false sync_configs { dense: COLLECTIVE } }");
  for (const TableConfig& table : model->tables())
    EXPECT_EQ(table.update_at(), TableConfig::COLLECTIVE) << table.name();
}

TEST(WideDeepSpecTest, RowsOfDenseFeaturesArePartOfTheOrderedInputs) {
  EXPECT_THAT(
      CreateDense(kModel)->ordered_inputs().at("embedding"),
      ElementsAre("the 3 rows of \"age\"", "the 3 rows of \"job\"", "the 50 rows of \"city\""));
  EXPECT_EQ(Create(kModel)->ordered_inputs().count("embedding"), 0u);
  const auto dense = CreateDense(kModel);
  const auto tables = *dense->input_tables();
  for (const char* name : {"embedding", "wide/embedding"}) {
    uint64_t sum = 0;
    for (const auto& input : tables.at(name).inputs) sum += input.rows;
    EXPECT_EQ(sum, Table(*dense, name).shape(0)) << name;
    EXPECT_TRUE(tables.at(name).embeddings);
  }
}

TEST(WideDeepSpecTest, DenseTablesRefuseOptionsOfTheSparseTable) {
  for (const char* option : {"max_rows: 100", "num_shards: 4", "columns { name: \"embedding\" }"}) {
    const std::string error = Error(std::string(kDenseFeatures) + kModel +
                                    "tables { name: \"embedding\" " + option + " }");
    EXPECT_THAT(error, HasSubstr("dense")) << option;
  }
}

TEST(WideDeepSpecTest, OptimizersFallBackToAllThenToAdam) {
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

TEST(WideDeepSpecTest, GeoUpdatesAtTheWorker) {
  const auto geo =
      Create(std::string(kModel) + "strategy { a_sync: true a_sync_configs { k_steps: 5 } }");
  for (const TableConfig& table : geo->tables()) EXPECT_EQ(table.update_at(), TableConfig::WORKER);
  const auto async = Create(kModel);
  for (const TableConfig& table : async->tables())
    EXPECT_EQ(table.update_at(), TableConfig::PSERVER);
}

TEST(WideDeepSpecTest, WideOnlyHasNoEmbeddingColumns) {
  const std::string in_both =
      absl::StrReplaceAll(kFeatures, {{" in_wide: false", ""}}) + "model { wide_deep {} }";
  const auto model = *ModelSpec::Create(Job(in_both), BuiltInSpecs());
  EXPECT_THAT(Names(*model), ElementsAre("embedding", "wide/weight", "wide/bias"));
  EXPECT_EQ(Table(*model, "embedding").columns_size(), 1);
}

TEST(WideDeepSpecTest, DeepOnlyHasNoWideTables) {
  const auto model = Create(
      "model { wide_deep { wide_numeric: false wide_categorical: false hidden_units: 4 "
      "embedding_dim: 2 } }");
  EXPECT_THAT(Names(*model), ElementsAre("embedding", "deep/0/weight", "deep/0/bias",
                                         "deep/1/weight", "deep/1/bias"));
  EXPECT_EQ(Table(*model, "embedding").columns(0).name(), "embedding");
}

TEST(WideDeepSpecTest, NumbersAloneNeedNoSparseTable) {
  const auto model = ModelSpec::Create(
      Job(R"(data { format: CSV csv { columns: ["y", "x"] } label { column: "y" } }
    features { name: "x" numeric {} } model { wide_deep { hidden_units: 4 } })"),
      BuiltInSpecs());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->sparse_tables(), IsEmpty());
  EXPECT_THAT((*model)->dense_tables(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(WideDeepSpecTest, RefusesImpossibleModels) {
  const std::string f = kFeatures;
  EXPECT_THAT(Error(f + "model { wide_deep { hidden_units: 4 } }"), HasSubstr("embedding_dim"));
  EXPECT_THAT(Error(f + "model { wide_deep { hidden_units: [4, 0] embedding_dim: 2 } }"),
              HasSubstr("0 units"));
  EXPECT_THAT(Error(f + "model { wide_deep { hidden_units: 4 embedding_dim: 2 dropout: 1 } }"),
              HasSubstr("dropout"));
  EXPECT_THAT(Error(f + "model { wide_deep { wide_numeric: false wide_categorical: false } }"),
              HasSubstr("wide_deep.wide_numeric: "));
  EXPECT_THAT(Error(f + kModel +
                    "features { name: \"z\" categorical { column: \"job\" } embedding_dim: 0 }"),
              testing::AllOf(HasSubstr("\"z\""), HasSubstr("model.wide_deep.embedding_dim")));
  EXPECT_THAT(Error(f + kModel +
                    "features { name: \"z\" categorical { column: \"job\" } embedding: \"job\" "
                    "embedding_dim: 9 }"),
              testing::AllOf(HasSubstr("\"z\""), HasSubstr("\"job\""), HasSubstr("9")));
}

}  // namespace
}  // namespace sluice
