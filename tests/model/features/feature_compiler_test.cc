#include "model/features/feature_compiler.h"

#include "common/config/config_problem.h"
#include "gmock/gmock.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FeatureErrorOf(const std::string& features) {
  return CreateError(FeaturesForTest(features));
}

std::vector<std::string> SlotNames(const FeatureSchema& schema) {
  std::vector<std::string> names;
  for (const auto& slot : schema.slots()) names.push_back(slot.name);
  return names;
}

std::vector<std::string> NumericNames(const FeatureSchema& schema) {
  std::vector<std::string> names;
  for (const auto& numeric : schema.numerics()) names.push_back(numeric.name);
  return names;
}

TEST(FeatureCompilerTest, SlotsAndNumbersAreInDeclarationOrder) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "c_x_b" cross { features: "c" features: "b" } }
      features { name: "n" numeric {} }
      features { name: "c" categorical {} }
      features { name: "b" numeric { boundaries: 1 } }
      features { name: "k" numeric { boundaries: 1 keep_numeric: true } })"));
  EXPECT_THAT(SlotNames(*schema), ElementsAre("c_x_b", "c", "b", "k"));
  EXPECT_THAT(NumericNames(*schema), ElementsAre("n", "k"));
}

TEST(FeatureCompilerTest, ColumnsAreLabelWeightAndEachFeatureColumnOnce) {
  JobConfig job = FeaturesForTest(R"(
      features { name: "a" categorical { column: "x" } }
      features { name: "b" numeric { column: "x" } }
      features { name: "w2" numeric { column: "w" } }
      features { name: "c" categorical {} })");
  EXPECT_THAT(SchemaForTest(job)->columns(), ElementsAre("y", "", "x", "w", "c"));
  job.mutable_data()->set_weight_column("w");
  EXPECT_THAT(SchemaForTest(job)->columns(), ElementsAre("y", "w", "x", "c"));
}

TEST(FeatureCompilerTest, WideAndDeepFollowTheDeclaration) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "a" in_wide: false categorical { multi_value_delimiter: "|" pooling: MEAN } }
      features { name: "n" in_deep: false numeric {} })"));
  EXPECT_FALSE(schema->slots()[0].in_wide);
  EXPECT_TRUE(schema->slots()[0].in_deep);
  EXPECT_EQ(schema->slots()[0].pooling, CategoricalFeature::MEAN);
  EXPECT_TRUE(schema->numerics()[0].in_wide);
  EXPECT_FALSE(schema->numerics()[0].in_deep);
}

TEST(FeatureCompilerTest, FeatureOnlyInCrossesIsNeitherSlotNorNumber) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "a" in_wide: false in_deep: false numeric { boundaries: 1 } }
      features { name: "b" categorical {} }
      features { name: "x" cross { features: "a" features: "b" } })"));
  EXPECT_THAT(SlotNames(*schema), ElementsAre("b", "x"));
  EXPECT_TRUE(schema->numerics().empty());
  EXPECT_THAT(FeatureErrorOf("features { name: 'a' in_wide: false in_deep: false categorical {} }"),
              AllOf(HasSubstr("\"a\""), HasSubstr("in_wide"), HasSubstr("in_deep")));
}

TEST(FeatureCompilerTest, FeaturesThatTheModelDoesNotUseAreRefused) {
  const auto error = [](const FeatureUse& use, const std::string& feature) {
    return CreateError(FeaturesForTest("features { name: 'a' " + feature +
                                       " } features { name: 'b' categorical {} }"),
                       use);
  };
  FeatureUse keys_only;
  keys_only.numbers = {false, false, "numbers need a network"};
  EXPECT_THAT(error(keys_only, "numeric {}"),
              AllOf(HasSubstr("\"a\": "), HasSubstr("need a network")));
  EXPECT_THAT(error(keys_only, "numeric { boundaries: 1 keep_numeric: true }"),
              HasSubstr("\"a\": keep_numeric"));
  FeatureUse wide_only;
  wide_only.numbers.deep = wide_only.keys.deep = false;
  EXPECT_THAT(error(wide_only, "in_wide: false numeric {}"), HasSubstr("\"a\""));
  EXPECT_THAT(error(wide_only, "in_wide: false categorical {}"), HasSubstr("\"a\""));
  FeatureUse numbers_only;
  numbers_only.keys = {false, false, "keys need a table"};
  for (const char* kind : {"categorical {}", "numeric { boundaries: 1 }"}) {
    EXPECT_THAT(error(numbers_only, kind), AllOf(HasSubstr("\"a\": "), HasSubstr("need a table")));
  }
  EXPECT_THAT(CreateError(FeaturesForTest("features { name: 'a' categorical {} } "
                                          "features { name: 'b' categorical {} } "
                                          "features { name: 'x' in_wide: false "
                                          "cross { features: ['a', 'b'] } }"),
                          wide_only),
              HasSubstr("\"x\": "));
}

TEST(FeatureCompilerTest, MeanPoolingOfASingleValueIsRefused) {
  EXPECT_THAT(FeatureErrorOf("features { name: 'a' categorical { pooling: MEAN } }"),
              HasSubstr("pooling MEAN"));
}

TEST(FeatureCompilerTest, ErrorsNameThePathOfTheFeature) {
  const auto field = [](const std::string& features) {
    return FieldOf(FeatureSchema::Create(FeaturesForTest(features)).status());
  };
  const std::string a = "features { name: 'a' categorical {} } ";
  EXPECT_EQ(field(a + "features { name: 'a' numeric {} }"), "features[1]");
  EXPECT_EQ(field(a + "features { name: 'x' cross { features: 'a' } }"), "features[1]");
  EXPECT_EQ(field("features { name: 'n' numeric { boundaries: nan } }"), "features[0]");
}

TEST(FeatureCompilerTest, LabelColumnMustSuitTheFormat) {
  EXPECT_EQ(SchemaForTest(
                JobForTest("data { format: CRITEO_TSV } features { name: 'C1' categorical {} }"))
                ->columns()[0],
            "label");
  EXPECT_THAT(CreateError(JobForTest("data { format: LIBSVM label { column: 'y' } }")),
              AllOf(HasSubstr("LIBSVM"), HasSubstr("data.label.column")));
  EXPECT_THAT(CreateError(JobForTest("data { format: CSV }")), HasSubstr("data.label.column"));
  EXPECT_THAT(
      CreateError(JobForTest("data { format: CSV label { column: 'y' } weight_column: 'y' }")),
      HasSubstr("data.weight_column"));
}

TEST(FeatureCompilerTest, BadNamesAreRefused) {
  EXPECT_THAT(FeatureErrorOf("features { categorical {} }"),
              AllOf(HasSubstr("features[0]"), HasSubstr("name")));
  EXPECT_THAT(FeatureErrorOf("features { name: 'a' }"),
              AllOf(HasSubstr("\"a\""), HasSubstr("no kind")));
  EXPECT_THAT(
      FeatureErrorOf("features { name: 'a' numeric {} } features { name: 'a' categorical {} }"),
      AllOf(HasSubstr("\"a\""), HasSubstr("twice")));
  EXPECT_THAT(FeatureErrorOf("features { name: 'a' categorical { column: 'y' } }"),
              AllOf(HasSubstr("\"a\""), HasSubstr("label column")));
}

TEST(FeatureCompilerTest, BadCrossesAreRefused) {
  const std::string a = "features { name: 'a' categorical {} } ";
  auto cross = [&](const std::string& more) { return FeatureErrorOf(a + more); };
  EXPECT_THAT(cross("features { name: 'x' cross { features: 'a' } }"), HasSubstr("\"x\""));
  EXPECT_THAT(cross("features { name: 'x' cross { features: 'a' features: 'b' } }"),
              AllOf(HasSubstr("\"x\""), HasSubstr("\"b\""), HasSubstr("declare it")));
  EXPECT_THAT(cross("features { name: 'x' cross { features: 'a' features: 'a' } }"),
              HasSubstr("twice"));
  EXPECT_THAT(cross("features { name: 'x' cross { features: 'a' features: 'x' } }"),
              HasSubstr("\"x\""));
  EXPECT_THAT(cross("features { name: 'n' numeric {} } features { name: 'x' cross { features: 'a' "
                    "features: 'n' } }"),
              AllOf(HasSubstr("\"n\""), HasSubstr("boundaries")));
  EXPECT_THAT(cross("features { name: 'm' categorical { multi_value_delimiter: '|' } } "
                    "features { name: 'x' cross { features: 'a' features: 'm' } }"),
              AllOf(HasSubstr("\"m\""), HasSubstr("several values")));
}

TEST(FeatureCompilerTest, BadNumbersAreRefused) {
  auto numeric = [](const std::string& text) {
    return FeatureErrorOf("features { name: 'n' numeric {" + text + "} }");
  };
  EXPECT_THAT(numeric("boundaries: 1 boundaries: 1"),
              AllOf(HasSubstr("\"n\""), HasSubstr("ascending")));
  EXPECT_THAT(numeric("boundaries: nan"), HasSubstr("boundaries[0]"));
  EXPECT_THAT(numeric("z_score { mean: 1 stddev: 0 }"), HasSubstr("stddev 0"));
  EXPECT_THAT(numeric("z_score { stddev: -1 }"), HasSubstr("stddev"));
  EXPECT_THAT(numeric("z_score { stddev: nan }"), HasSubstr("stddev"));
  EXPECT_THAT(numeric("min_max { min: 2 max: 2 }"), HasSubstr("min_max"));
  EXPECT_THAT(numeric("min_max { min: 0 max: inf }"), HasSubstr("min_max"));
  EXPECT_THAT(numeric("default_value: nan"), HasSubstr("default_value"));
  EXPECT_THAT(numeric("keep_numeric: true"), HasSubstr("boundaries"));
  EXPECT_THAT(numeric("boundaries: 1 log: true"), HasSubstr("keep_numeric"));
  EXPECT_THAT(numeric("date_part: 99"), HasSubstr("date_part"));
}

TEST(FeatureCompilerTest, AVectorIsANumberForEachPlace) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "a" numeric {} }
      features { name: "v" in_deep: false numeric { dim: 2 } }
      features { name: "b" numeric {} })"));
  EXPECT_THAT(NumericNames(*schema), ElementsAre("a", "v[0]", "v[1]", "b"));
  EXPECT_TRUE(schema->numerics()[2].in_wide);
  EXPECT_FALSE(schema->numerics()[2].in_deep);
  EXPECT_EQ(schema->numerics()[2].dim, 2u);
}

TEST(FeatureCompilerTest, BadVectorsAreRefused) {
  const auto vector = [](const std::string& fields) {
    return FeatureErrorOf("features { name: 'v' numeric { " + fields + " } }");
  };
  EXPECT_THAT(vector("dim: 0"), HasSubstr("1 to 65536"));
  EXPECT_THAT(vector("dim: 65537"), HasSubstr("1 to 65536"));
  EXPECT_THAT(vector("dim: 2 boundaries: 1"), HasSubstr("boundaries"));
  EXPECT_THAT(vector("dim: 2 date_part: YEAR"), HasSubstr("date_part"));
  EXPECT_THAT(vector("multi_value_delimiter: '|'"), HasSubstr("set dim"));
  EXPECT_THAT(vector("dim: 2 multi_value_delimiter: '||'"), HasSubstr("one character"));
  EXPECT_THAT(vector("dim: 2 multi_value_delimiter: '-'"), HasSubstr("character of numbers"));
  EXPECT_THAT(FeatureErrorOf("features { name: 'v' numeric { dim: 2 } } "
                             "features { name: 'v[1]' numeric {} }"),
              HasSubstr("rename"));
  std::string many;
  for (int i = 0; i < 17; ++i)
    many += "features { name: 'v" + std::to_string(i) + "' numeric { dim: 65536 } } ";
  EXPECT_THAT(FeatureErrorOf(many), HasSubstr("1048576"));
  JobConfig slots = FeaturesForTest("features { name: 'v' numeric { dim: 2 } }");
  slots.mutable_data()->set_format(DataConfig::MULTI_SLOT);
  Slot* const slot = slots.mutable_data()->add_slots();
  slot->set_name("v");
  slot->set_dim(2);
  EXPECT_THAT(CreateError(slots), AllOf(HasSubstr("v.0"), HasSubstr("remove the dim of the slot")));
  JobConfig libffm = FeaturesForTest("features { name: '7' numeric { dim: 2 } }");
  libffm.mutable_data()->set_format(DataConfig::LIBFFM);
  libffm.mutable_data()->clear_label();
  EXPECT_THAT(CreateError(libffm), HasSubstr("LIBFFM"));
}

TEST(FeatureCompilerTest, BadCategoriesAreRefused) {
  auto categorical = [](const std::string& text) {
    return FeatureErrorOf("features { name: 'c' categorical {" + text + "} }");
  };
  EXPECT_THAT(categorical("multi_value_delimiter: '||'"),
              AllOf(HasSubstr("\"c\""), HasSubstr("one character")));
  EXPECT_THAT(categorical("vocabulary: 'a' vocabulary: 'a'"), HasSubstr("twice"));
  EXPECT_THAT(categorical("vocabulary: ''"), HasSubstr("empty value"));
  EXPECT_THAT(categorical("date_part: HOUR multi_value_delimiter: '|'"),
              AllOf(HasSubstr("date_part"), HasSubstr("multi_value_delimiter")));
  EXPECT_THAT(categorical("date_format: '%H'"), HasSubstr("without date_part"));
  EXPECT_THAT(categorical("date_part: HOUR date_format: '%Y'"), HasSubstr("lacks %H"));
  EXPECT_THAT(categorical("weight_delimiter: '::'"), HasSubstr("one character"));
  EXPECT_THAT(categorical("multi_value_delimiter: '|' weight_delimiter: '|'"),
              HasSubstr("weight_delimiter"));
  EXPECT_THAT(categorical("weight_delimiter: '.'"), HasSubstr("characters of numbers"));
  EXPECT_THAT(categorical("weight_delimiter: ':'"), HasSubstr("this model has no weights"));
}

TEST(FeatureCompilerTest, SlotsKnowTheirSparseTable) {
  const JobConfig job = FeaturesForTest(R"(
      features { name: "age" numeric { boundaries: 30 keep_numeric: true } }
      features { name: "part" in_wide: false in_deep: false table: "t" categorical {} }
      features { name: "user" key: RAW categorical {} }
      features { name: "city" categorical {} }
      features { name: "x" table: "x" cross { features: ["part", "city"] } })");
  JobConfig without = job;
  without.mutable_features(1)->clear_table();
  FeatureUse use;
  use.several_tables = true;
  const auto schema = FeatureSchema::Create(without, use);
  ASSERT_TRUE(schema.ok()) << schema.status();
  std::vector<std::pair<std::string, uint32_t>> tables;
  for (const FeatureSchema::Slot& slot : (*schema)->slots())
    tables.emplace_back(slot.name, slot.table);
  EXPECT_THAT(tables, testing::ElementsAre(testing::Pair("age", 0), testing::Pair("user", 1),
                                           testing::Pair("city", 0), testing::Pair("x", 2)));
  // A feature without rows is in no table.
  EXPECT_THAT(CreateError(job, use), AllOf(HasSubstr("features[1].table"), HasSubstr("crosses")));
  // Most models have a single table.
  EXPECT_THAT(CreateError(without), AllOf(HasSubstr("\"user\""), HasSubstr("\"age\"")));
}

TEST(FeatureCompilerTest, PlainNumberHasNoEmbeddingWidth) {
  EXPECT_THAT(FeatureErrorOf("features { name: 'n' embedding_dim: 8 numeric {} }"),
              HasSubstr("plain number"));
  SchemaForTest(FeaturesForTest("features { name: 'c' embedding_dim: 8 categorical {} }"));
  SchemaForTest(
      FeaturesForTest("features { name: 'b' embedding_dim: 8 numeric { boundaries: 1 } }"));
}

}  // namespace
}  // namespace sluice
