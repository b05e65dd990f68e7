#include "model/model_match.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/config/job_config.h"
#include "common/saved_model/saved_model.h"
#include "common/table/table_layout.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/model.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kJob[] = R"(
  data {
    format: CSV train_files: "/d/train" eval_files: "/d/test"
    csv { columns: ["label", "age", "hours", "job", "city", "tags"] missing: "?" }
    label { column: "label" positive: "yes" negative: "no" }
  }
  features { name: "age" numeric { z_score { mean: 40 stddev: 10 } } }
  features { name: "hours" numeric { log: true } }
  features { name: "old" numeric { column: "age" boundaries: [30, 60] } }
  features { name: "job" categorical { vocabulary: ["a", "b"] } }
  features { name: "city" categorical { hash_buckets: 100 } in_deep: false }
  features { name: "tags" categorical { multi_value_delimiter: "|" } }
  features { name: "both" cross { features: ["job", "city"] } in_deep: false }
  model { wide_deep { hidden_units: [16, 4] embedding_dim: 8 } }
)";

JobConfig Effective(const std::string& text) {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  const auto effective = EffectiveJobConfig(job, "/", BuiltInSpecs());
  EXPECT_TRUE(effective.ok()) << effective.status();
  return effective.ok() ? *effective : job;
}

using Edits = std::vector<std::pair<std::string, std::string>>;

std::string Edited(const Edits& edits) {
  std::string text = kJob;
  for (const auto& [from, to] : edits) {
    EXPECT_TRUE(absl::StrContains(text, from)) << from;
    text = absl::StrReplaceAll(text, {{from, to}});
  }
  return text;
}

ModelDifferences Differences(const Edits& edits) {
  const auto found = CompareWithModel(Effective(kJob), Effective(Edited(edits)), BuiltInSpecs());
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *found : ModelDifferences();
}

TEST(ModelMatchTest, TheSameFeaturesMatchWhateverElseDiffers) {
  for (const Edits& edits : std::vector<Edits>{
           {},
           {{"/d/train", "/e/other"}},
           {{"embedding_dim: 8", "embedding_dim: 8 dropout: 0.5"}},
           {{"[\"a\", \"b\"]", "[\"b\", \"a\"]"}},  // a key is a hash of the value
           {{"numeric { z_score", "numeric { column: \"age\" z_score"}},
           {{"model {", "optimizers { all { sgd {} } } train { epochs: 3 seed: 9 } model {"}},
           {{"columns: [\"label\", \"age\", \"hours\", \"job\", \"city\", \"tags\"]",
             "header: true"}}}) {
    const ModelDifferences found = Differences(edits);
    EXPECT_THAT(found.refused, IsEmpty());
    EXPECT_THAT(found.warnings, IsEmpty());
  }
}

struct Case {
  Edits edits;
  std::vector<std::string> said;  // in one line
};

TEST(ModelMatchTest, CertainMistakesAreRefused) {
  const std::vector<Case> cases = {
      // The same feature reads another column.
      {{{"name: \"hours\" numeric {", "name: \"hours\" numeric { column: \"age\""}},
       {"\"hours\"", "column", "\"age\""}},
      {{{"name: \"tags\" categorical {", "name: \"tags\" categorical { column: \"job\""}},
       {"\"tags\"", "column", "\"job\""}},
      // The same cell gives another number, or another key.
      {{{"mean: 40", "mean: 41"}}, {"\"age\"", "normalization", "mean 40", "mean 41"}},
      {{{"z_score { mean: 40 stddev: 10 }", ""}}, {"\"age\"", "normalization", "none"}},
      {{{"log: true", ""}}, {"\"hours\"", "numeric.log", "true", "false"}},
      {{{"[30, 60]", "[30, 61]"}}, {"\"old\"", "boundaries[1]", "60", "61"}},
      {{{"[30, 60]", "[30]"}}, {"\"old\"", "boundaries", "2", "1"}},
      {{{"hash_buckets: 100", "hash_buckets: 50"}}, {"\"city\"", "hash_buckets", "100", "50"}},
      {{{"multi_value_delimiter: \"|\"", "multi_value_delimiter: \"|\" pooling: MEAN"}},
       {"\"tags\"", "pooling", "SUM", "MEAN"}},
      {{{"vocabulary: [\"a\", \"b\"]", "date_part: MONTH"}},
       {"\"job\"", "date_part", "WHOLE", "MONTH"}},
      {{{"[\"job\", \"city\"]", "[\"city\", \"job\"]"}}, {"\"both\"", "cross", "job x city"}},
      {{{"log: true", "boundaries: [1] keep_numeric: true log: true"}},
       {"\"hours\"", "keep_numeric"}},
      {{{"categorical { multi_value_delimiter: \"|\" }", "numeric {}"}},
       {"\"tags\"", "categorical", "numeric"}},
      // Weights of the dense layers belong to positions.
      {{{"name: \"age\" numeric { z_score { mean: 40 stddev: 10 } }",
         "name: \"hours\" numeric { log: true }X"},
        {"features { name: \"hours\" numeric { log: true } }\n",
         "features { name: \"age\" numeric { z_score { mean: 40 stddev: 10 } } }\n"},
        {"}X", "}"}},
       {"input", "deep part", "\"age\"", "\"hours\""}},
      {{{"name: \"job\"", "name: \"work\""},
        {"[\"job\", ", "[\"work\", "},
        {"vocabulary: [\"a\", \"b\"]", "column: \"job\""}},
       {"input 2 of the deep part", "\"job\"", "\"work\""}},
      // One file cannot have its columns in two orders.
      {{{"\"age\", \"hours\"", "\"hours\", \"age\""}}, {"data.csv.columns", "\"age\"", "2", "3"}},
      // The labels are reversed.
      {{{"positive: \"yes\" negative: \"no\"", "positive: \"no\" negative: \"yes\""}},
       {"data.label", "\"no\"", "negative", "positive"}}};
  for (const Case& one : cases) {
    const ModelDifferences found = Differences(one.edits);
    ASSERT_THAT(found.refused, Not(IsEmpty())) << one.edits[0].second;
    bool said = false;
    for (const std::string& line : found.refused) {
      said |= std::all_of(one.said.begin(), one.said.end(),
                          [&](const std::string& part) { return absl::StrContains(line, part); });
    }
    EXPECT_TRUE(said) << testing::PrintToString(found.refused);
  }
}

TEST(ModelMatchTest, FeaturesWhoseRowsAreElsewhereAreRefusedByName) {
  const std::vector<Case> cases = {
      {{{"name: \"tags\"", "name: \"tags\" embedding: \"topic\""}},
       {"\"tags\"", "embedding", "\"tags\"", "\"topic\""}},
      {{{"name: \"tags\"", "name: \"tags\" key: RAW"}}, {"\"tags\"", "key", "HASHED", "RAW"}},
      {{{"name: \"tags\"", "name: \"tags\" table: \"t\""}},
       {"\"tags\"", "table \"embedding\"", "table \"t\""}},
      {{{"name: \"tags\"", "name: \"tags\" embedding_dim: 4"}},
       {"\"tags\"", "table \"embedding\"", "table \"embedding_4\"", "embedding 8", "embedding 4"}},
      // The others move with it: "old" is the first of them.
      {{{"name: \"tags\"", "name: \"tags\" embedding_dim: 4"}},
       {"\"old\" (and 3 more)", "table \"embedding_8\""}},
      {{{"embedding_dim: 8", "embedding_dim: 9"}}, {"\"old\" (and 4 more)", "embedding 9"}}};
  for (const Case& one : cases) {
    const ModelDifferences found = Differences(one.edits);
    const bool said =
        std::any_of(found.refused.begin(), found.refused.end(), [&](const std::string& line) {
          return std::all_of(one.said.begin(), one.said.end(), [&](const std::string& part) {
            return absl::StrContains(line, part);
          });
        });
    EXPECT_TRUE(said) << testing::PrintToString(found.refused);
  }
  // A `table` for the feature of another width leaves the others their table.
  EXPECT_THAT(Differences({{"model {",
                            "features { name: \"new\" categorical { column: \"job\" } in_deep: "
                            "false table: \"new\" } model {"}})
                  .refused,
              IsEmpty());
  // The default width, said once more.
  EXPECT_THAT(Differences({{"name: \"tags\"", "name: \"tags\" embedding_dim: 8"}}).refused,
              IsEmpty());
}

constexpr char kDenseJob[] = R"(
  data {
    format: CSV train_files: "/d/train" csv { columns: ["label", "age", "job", "city"] }
    label { column: "label" }
  }
  features { name: "old" numeric { column: "age" boundaries: [30, 60] dense: true } }
  features { name: "job" categorical { vocabulary: ["a", "b", "c"] dense: true } }
  features { name: "city" categorical { hash_buckets: 100 vocabulary: ["x", "y"] dense: true } in_deep: false }
  model { wide_deep { hidden_units: [16, 4] embedding_dim: 8 } }
)";

TEST(ModelMatchTest, RowsOfDenseFeaturesBelongToPositions) {
  const auto differences = [](const Edits& edits) {
    std::string text = kDenseJob;
    for (const auto& [from, to] : edits) text = absl::StrReplaceAll(text, {{from, to}});
    EXPECT_TRUE(edits.empty() || text != kDenseJob);
    const auto found = CompareWithModel(Effective(kDenseJob), Effective(text), BuiltInSpecs());
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : ModelDifferences();
  };
  EXPECT_THAT(differences({}).refused, IsEmpty());
  // The rows of "city" are those of hashes, so the order of its vocabulary does not matter.
  EXPECT_THAT(differences({{"[\"x\", \"y\"]", "[\"y\", \"x\"]"}}).refused, IsEmpty());
  for (const Case& one : std::vector<Case>{
           {{{"[\"a\", \"b\", \"c\"]", "[\"a\", \"c\", \"b\"]"}},
            {"\"job\"", "vocabulary[1]", "\"b\"", "\"c\""}},
           {{{"[\"a\", \"b\", \"c\"]", "[\"a\", \"b\"]"}}, {"\"job\"", "vocabulary[2]", "missing"}},
           {{{"[\"a\", \"b\", \"c\"] dense: true",
              "[\"a\", \"b\", \"c\"] dense: true missing_is_value: true"}},
            {"embedding part", "4 rows of \"job\"", "5 rows of \"job\""}},
           {{{" dense: true", ""}}, {"\"old\"", "dense", "true", "false"}},
           // The rows of a feature of the deep part alone come first.
           {{{"\"job\" categorical", "\"job\" in_wide: false categorical"}},
            {"input 1 of the embedding part", "\"old\"", "\"job\""}}}) {
    const ModelDifferences found = differences(one.edits);
    const bool said =
        std::any_of(found.refused.begin(), found.refused.end(), [&](const std::string& line) {
          return std::all_of(one.said.begin(), one.said.end(), [&](const std::string& part) {
            return absl::StrContains(line, part);
          });
        });
    EXPECT_TRUE(said) << testing::PrintToString(found.refused);
  }
}

TEST(ModelMatchTest, PossiblyIntendedDifferencesAreWarnings) {
  const std::vector<Case> cases = {
      {{{"model {",
         "features { name: \"new\" categorical { column: \"job\" } in_deep: false } "
         "model {"}},
       {"\"new\" is new"}},
      {{{"features { name: \"both\" cross { features: [\"job\", \"city\"] } in_deep: false }", ""}},
       {"\"both\"", "not in this job"}},
      {{{"[\"a\", \"b\"]", "[\"a\", \"c\", \"d\"]"}}, {"\"job\"", "lacks \"b\"", "\"c\", \"d\""}},
      {{{"vocabulary: [\"a\", \"b\"]", ""}}, {"\"job\"", "no vocabulary"}},
      {{{"log: true", "log: true default_value: 7"}}, {"\"hours\"", "default_value", "0", "7"}},
      {{{"hash_buckets: 100", "hash_buckets: 100 missing_is_value: true"}},
       {"\"city\"", "missing_is_value"}},
      {{{"multi_value_delimiter: \"|\"", ""}}, {"\"tags\"", "several values"}},
      {{{"missing: \"?\"", ""}}, {"data.csv.missing", "lacks \"?\""}},
      {{{"positive: \"yes\"", "positive: [\"yes\", \"y\"]"}}, {"data.label.positive", "\"y\""}},
      {{{"positive: \"yes\" negative: \"no\"", "positive_at_least: 3"}},
       {"positive_at_least", "3"}},
      {{{"label\"", "target\""}}, {"data.label.column", "\"label\"", "\"target\""}},
      // Other files may have another order.
      {{{"/d/train", "/d/more"},
        {"/d/test", "/d/last"},
        {"\"age\", \"hours\"", "\"hours\", \"age\""}},
       {"data.csv.columns", "\"age\""}}};
  for (const Case& one : cases) {
    const ModelDifferences found = Differences(one.edits);
    EXPECT_THAT(found.refused, IsEmpty()) << testing::PrintToString(found.refused);
    bool said = false;
    for (const std::string& line : found.warnings) {
      said |= std::all_of(one.said.begin(), one.said.end(),
                          [&](const std::string& part) { return absl::StrContains(line, part); });
    }
    EXPECT_TRUE(said) << one.edits[0].second << testing::PrintToString(found.warnings);
  }
}

TEST(ModelMatchTest, IndicesAgainstNamesOfColumnsAreOnlyAWarning) {
  const std::string libsvm = R"(
    data { format: LIBSVM train_files: "/d/t" } model { wide_deep { hidden_units: 4 } }
    features { name: "x" numeric { column: "7" } })";
  const std::string csv = R"(
    data { format: CSV train_files: "/d/c" csv { header: true } label { column: "y" } }
    model { wide_deep { hidden_units: 4 } } features { name: "x" numeric { column: "age" } })";
  const auto found = CompareWithModel(Effective(libsvm), Effective(csv), BuiltInSpecs());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->refused, IsEmpty());
  EXPECT_THAT(found->warnings, ElementsAre(AllOf(HasSubstr("\"7\""), HasSubstr("\"age\""))));
}

class CheckInitialModelTest : public ::testing::Test {
 protected:
  CheckInitialModelTest() {
    std::filesystem::remove_all(dir_);
    const JobConfig job = Effective(kJob);
    const auto model = Model::Create(job, BuiltInModels());
    EXPECT_TRUE(model.ok()) << model.status();
    Manifest manifest;
    for (const TableConfig& table : (*model)->tables()) *manifest.add_tables() = table;
    ResolveShards(1, manifest.mutable_tables());
    const auto layouts = CreateTableLayouts(manifest.tables(), 0);
    EXPECT_TRUE(layouts.ok()) << layouts.status();
    for (const auto& table : *layouts) SaveZeros(*table, &manifest);
    const auto finished = FinishModel(dir_, job, manifest, Env::Real());
    EXPECT_TRUE(finished.ok()) << finished.status();
  }
  ~CheckInitialModelTest() override { std::filesystem::remove_all(dir_); }
  void SaveZeros(const TableLayout& table, Manifest* manifest) {
    for (uint32_t shard = 0; shard < table.num_shards(); ++shard) {
      ShardValues values;
      if (!table.sparse()) {
        values.first_element = shard * table.block_elements();
        values.weights.resize(table.ShardElements(shard));
      }
      const auto file = WriteShardFile(dir_, table, shard, values, Env::Real());
      ASSERT_TRUE(file.ok()) << file.status();
      *manifest->add_files() = *file;
    }
  }
  absl::StatusOr<StartCheck> Check(const Edits& edits, bool evaluate_only = false) {
    JobConfig job = Effective(Edited(edits));
    job.set_initial_model(dir_);
    job.set_evaluate_only(evaluate_only);
    return CheckInitialModel(job, BuiltInSpecs(), Env::Real());
  }

  const std::string dir_ = ::testing::TempDir() + "check_initial_model_test";
};

TEST_F(CheckInitialModelTest, AMissingModelIsNotReportedHere) {
  JobConfig job = Effective(kJob);
  EXPECT_THAT(CheckInitialModel(job, BuiltInSpecs(), Env::Real())->tables, IsEmpty());
  job.set_initial_model(dir_ + "/none");
  EXPECT_THAT(CheckInitialModel(job, BuiltInSpecs(), Env::Real())->tables, IsEmpty());
}

TEST_F(CheckInitialModelTest, AMatchingModelReturnsItsWarnings) {
  EXPECT_THAT(Check({})->warnings, IsEmpty());
  EXPECT_THAT(Check({{"hash_buckets: 100", "hash_buckets: 100 missing_is_value: true"}})->warnings,
              ElementsAre(AllOf(HasSubstr("initial_model: "), HasSubstr("\"city\""))));
}

TEST_F(CheckInitialModelTest, SwappedColumnsAreRefusedAlthoughEveryTableFits) {
  const auto checked =
      Check({{"name: \"age\" numeric {", "name: \"age\" numeric { column: \"hours\""},
             {"name: \"hours\" numeric {", "name: \"hours\" numeric { column: \"age\""}});
  EXPECT_EQ(checked.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(checked.status().message()),
              AllOf(HasSubstr("initial_model: "), HasSubstr(dir_), HasSubstr("feature \"age\""),
                    HasSubstr("feature \"hours\"")));
}

const Edits kNewFeature = {{"model {", "features { name: \"new\" categorical {} } model {"},
                           {"\"tags\"]", "\"tags\", \"new\"]"}};

TEST_F(CheckInitialModelTest, TablesFollowTheFeatures) {
  const auto checked = Check(kNewFeature);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_THAT(checked->warnings, IsEmpty()) << "a note tells of it";
  EXPECT_THAT(checked->notes,
              ElementsAre(AllOf(HasSubstr("initial_model: features added: "), HasSubstr("\"new\"")),
                          HasSubstr("table 'deep/0/weight'")));
  for (const TableConfig& table : checked->tables)
    EXPECT_EQ(table.has_start(), table.name() == "deep/0/weight") << table.name();
}

TEST_F(CheckInitialModelTest, AnEvaluationNeedsTheFeaturesOfTheModel) {
  EXPECT_TRUE(Check({}, /*evaluate_only=*/true).ok());
  const auto checked = Check(kNewFeature, /*evaluate_only=*/true);
  EXPECT_EQ(checked.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(checked.status().message()),
              AllOf(HasSubstr("initial_model: table"), HasSubstr("\"new\"")));
}

TEST_F(CheckInitialModelTest, MisfitTablesAreReportedWithTheFeaturesThatDiffer) {
  Edits edits = kNewFeature;
  edits.push_back({"[16, 4]", "[16, 5]"});
  const auto checked = Check(edits);
  EXPECT_EQ(checked.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(checked.status().message()),
              AllOf(HasSubstr("initial_model: table 'deep/1/weight'"), HasSubstr("\"new\"")));
}

TEST_F(CheckInitialModelTest, AModelWithoutItsJobIsAWarning) {
  std::filesystem::remove(dir_ + "/job.textproto");
  EXPECT_THAT(Check({})->warnings,
              ElementsAre(AllOf(HasSubstr("initial_model: "), HasSubstr(dir_))));
}

}  // namespace
}  // namespace sluice
