#include "model/features/feature_schema.h"

#include <cmath>
#include <set>

#include "gmock/gmock.h"
#include "model/features/feature_compiler.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The keys of the only slot for one cell of column "c".
std::vector<uint64_t> Keys(const std::string& categorical, const std::string& cell) {
  const auto schema =
      SchemaForTest(FeaturesForTest("features { name: 'c' categorical {" + categorical + "} }"));
  return KeysOf(ExampleForTest(*schema, {{"c", cell}}), 0, 0);
}

double Number(const std::string& numeric, const std::string& cell) {
  const auto schema =
      SchemaForTest(FeaturesForTest("features { name: 'n' numeric {" + numeric + "} }"));
  const Batch batch =
      cell == "(missing)" ? ExampleForTest(*schema, {}) : ExampleForTest(*schema, {{"n", cell}});
  return batch.numeric.size() == 1 ? batch.numeric[0] : NAN;
}

uint64_t Key(const std::string& value) { return ValueKey(value, SlotSeed("c")); }

// Computed by an independent implementation of hash.h and feature_compiler.h.
TEST(FeatureSchemaTest, GoldenKeysAreFrozen) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "occupation" categorical { missing_is_value: true } }
      features { name: "education" categorical {} }
      features { name: "age" numeric { boundaries: 20 boundaries: 30 } }
      features { name: "sex" categorical { vocabulary: "Male" } }
      features { name: "C1" categorical { hash_buckets: 1000 } }
      features { name: "x" cross { features: "education" features: "age" } })"));
  Batch batch = ExampleForTest(*schema, {{"occupation", "Exec-managerial"},
                                         {"education", "Bachelors"},
                                         {"age", "39"},
                                         {"sex", "Female"},
                                         {"C1", "68fd1e64"}});
  EXPECT_THAT(batch.keys, ElementsAre(0xac4d1b38ec9b9c01, 0xebb448d489340885, 0x7a50a5565dec2fce,
                                      0xcf36124bfb5d8a8, 0x22f7181f990c258a, 0xc9c36ea11097ad9a));
  EXPECT_THAT(KeysOf(ExampleForTest(*schema, {}), 0, 0), ElementsAre(0x779f78f6f0ff295e));
}

TEST(FeatureSchemaTest, GoldenFoldedCrossIsFrozen) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "x" cross { features: "education" features: "age" hash_buckets: 100 } }
      features { name: "education" in_wide: false in_deep: false categorical {} }
      features { name: "age" in_wide: false in_deep: false numeric { boundaries: 20 boundaries: 30 } })"));
  EXPECT_THAT(ExampleForTest(*schema, {{"education", "Bachelors"}, {"age", "30"}}).keys,
              ElementsAre(0x98f7981c7d8e259a));
}

TEST(FeatureSchemaTest, RawCellsAreTheirKeys) {
  FeatureUse use;
  use.several_tables = true;
  const auto created = FeatureSchema::Create(FeaturesForTest(R"(
      features { name: "user" key: RAW categorical {} }
      features { name: "bought" key: RAW categorical { multi_value_delimiter: "|" } }
      features { name: "age" categorical {} }
      features { name: "x" cross { features: "user" features: "age" } })"),
                                             use);
  ASSERT_TRUE(created.ok()) << created.status();
  const std::shared_ptr<const FeatureSchema> schema = *created;
  const Batch batch = ExampleForTest(
      *schema, {{"user", "-2"}, {"bought", "7|18446744073709551615|7"}, {"age", "30"}});
  EXPECT_THAT(KeysOf(batch, 0, 0), ElementsAre(uint64_t{0} - 2));
  EXPECT_THAT(KeysOf(batch, 0, 1), ElementsAre(7, UINT64_MAX, 7));
  const uint64_t age = ValueKey("30", SlotSeed("age"));
  EXPECT_THAT(KeysOf(batch, 0, 2), ElementsAre(age));
  EXPECT_THAT(KeysOf(batch, 0, 3),
              ElementsAre(CombineHash(CombineHash(SlotSeed("x"), uint64_t{0} - 2), age)));
  EXPECT_THAT(ExampleForTest(*schema, {{"age", "30"}}).keys, ElementsAre(age)) << "missing";

  Batch bad = EmptyBatch(*schema);
  for (const char* cell : {"7|x", "7|1.0", "7|18446744073709551616"}) {
    const absl::Status status =
        AppendForTest(*schema, {{"y", "1"}, {"user", "1"}, {"bought", cell}}, &bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("\"bought\""), HasSubstr(std::string(cell).substr(2))));
    EXPECT_TRUE(bad.keys.empty());
  }
  EXPECT_THAT(std::string(AppendForTest(*schema, {{"y", "1"}, {"user", "u7"}}, &bad).message()),
              AllOf(HasSubstr("column \"user\""), HasSubstr("\"u7\""), HasSubstr("RAW")));
}

TEST(FeatureSchemaTest, RawValuesMayHaveWeights) {
  FeatureUse use;
  use.key_weights = true;
  const auto schema = FeatureSchema::Create(
      FeaturesForTest("features { name: 'c' key: RAW categorical { multi_value_delimiter: '|' "
                      "weight_delimiter: ':' } }"),
      use);
  ASSERT_TRUE(schema.ok()) << schema.status();
  const Batch batch = ExampleForTest(**schema, {{"c", "3:0.5|4"}});
  EXPECT_THAT(batch.keys, ElementsAre(3, 4));
  EXPECT_THAT(batch.key_weights, ElementsAre(0.5f, 1));
}

TEST(FeatureSchemaTest, FeaturesOfOneEmbeddingShareKeys) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "item" categorical { vocabulary: ["a", "b"] missing_is_value: true } }
      features { name: "bought" embedding: "item"
                 categorical { vocabulary: ["b", "a"] missing_is_value: true multi_value_delimiter: "|" } }
      features { name: "low" embedding: "price" numeric { boundaries: 1 } }
      features { name: "high" embedding: "price" numeric { boundaries: 1 } }
      features { name: "x" embedding: "pair" cross { features: ["item", "low"] } })"));
  const Batch batch =
      ExampleForTest(*schema, {{"item", "a"}, {"bought", "b|a"}, {"low", "2"}, {"high", "3"}});
  const uint64_t item = SlotSeed("item");
  EXPECT_THAT(KeysOf(batch, 0, 0), ElementsAre(ValueKey("a", item)));
  EXPECT_THAT(KeysOf(batch, 0, 1), ElementsAre(ValueKey("b", item), ValueKey("a", item)));
  const uint64_t bucket = ValueKey("1", SlotSeed("price"));
  EXPECT_THAT(KeysOf(batch, 0, 2), ElementsAre(bucket));
  EXPECT_THAT(KeysOf(batch, 0, 3), ElementsAre(bucket));
  EXPECT_THAT(KeysOf(batch, 0, 4),
              ElementsAre(CombineHash(CombineHash(SlotSeed("pair"), ValueKey("a", item)), bucket)));
  EXPECT_THAT(KeysOf(ExampleForTest(*schema, {}), 0, 0), ElementsAre(MissingKey(item)));
}

TEST(FeatureSchemaTest, NormalizationsAreAppliedInOrder) {
  auto near = [](double value, double expected) {
    return std::isfinite(value) && std::abs(value - expected) <= 1e-6;
  };
  EXPECT_TRUE(near(Number("", "-2.5"), -2.5));
  EXPECT_TRUE(near(Number("min_max { min: 10 max: 20 }", "15"), 0.5));
  EXPECT_TRUE(near(Number("z_score { mean: 1 stddev: 2 }", "5"), 2));
  EXPECT_TRUE(near(Number("log: true", "99"), std::log(100.0)));
  EXPECT_TRUE(near(Number("log: true", "-5"), 0));
  EXPECT_TRUE(
      near(Number("log: true z_score { mean: 1 stddev: 0.5 }", "99"), (std::log(100.0) - 1) / 0.5));
  EXPECT_TRUE(
      near(Number("date_part: MINUTE_OF_DAY min_max { max: 1440 }", "2001-01-01 12:00"), 0.5));
}

TEST(FeatureSchemaTest, MissingNumberIsItsDefaultBeforeNormalization) {
  EXPECT_EQ(Number("", "(missing)"), 0);
  EXPECT_EQ(Number("default_value: 7", "(missing)"), 7);
  EXPECT_EQ(Number("default_value: 5 z_score { mean: 1 stddev: 2 }", "(missing)"), 2);
}

// The numbers of a vector in the column "v", or why the line is malformed.
absl::StatusOr<std::vector<float>> VectorOf(const std::string& numeric, const std::string& cell) {
  const auto schema =
      SchemaForTest(FeaturesForTest("features { name: 'a' numeric {} } features { name: 'v' "
                                    "numeric {" +
                                    numeric + "} } features { name: 'b' numeric {} }"));
  Batch batch = EmptyBatch(*schema);
  std::map<std::string, std::string> cells = {{"y", "1"}, {"a", "7"}, {"b", "8"}};
  if (cell != "(missing)") cells["v"] = cell;
  const absl::Status status = AppendForTest(*schema, cells, &batch);
  if (!status.ok()) {
    EXPECT_TRUE(batch.numeric.empty());
    return status;
  }
  // Between its neighbours.
  EXPECT_EQ(batch.numeric.front(), 7);
  EXPECT_EQ(batch.numeric.back(), 8);
  return std::vector<float>(batch.numeric.begin() + 1, batch.numeric.end() - 1);
}

TEST(FeatureSchemaTest, ACellMayHoldAVector) {
  const char bars[] = "dim: 3 multi_value_delimiter: '|' z_score { mean: 1 stddev: 2 }";
  EXPECT_THAT(*VectorOf(bars, "1|3|-1"), ElementsAre(0, 1, -1));
  EXPECT_THAT(*VectorOf(bars, " 1 | 3e0|+5"), ElementsAre(0, 1, 2));
  // A missing value among others, and a missing cell.
  EXPECT_THAT(*VectorOf(bars, "1||5"), ElementsAre(0, -0.5, 2));
  EXPECT_THAT(*VectorOf(bars, "(missing)"), ElementsAre(-0.5, -0.5, -0.5));
  EXPECT_THAT(*VectorOf("dim: 2 default_value: 3 multi_value_delimiter: '|' log: true", "|0"),
              ElementsAre(::testing::FloatEq(std::log1p(3.0F)), 0));
  EXPECT_THAT(*VectorOf("dim: 2 min_max { max: 4 } multi_value_delimiter: ' '", " 1   2 "),
              ElementsAre(0.25, 0.5));
  // Printed lists need no delimiter.
  EXPECT_THAT(*VectorOf("dim: 2", "[0.5, 1]"), ElementsAre(0.5, 1));
  EXPECT_THAT(*VectorOf("dim: 2", "[ 0.5  1. ]"), ElementsAre(0.5, 1));
  EXPECT_THAT(*VectorOf("dim: 2 multi_value_delimiter: '|'", "[0.5, 1]"), ElementsAre(0.5, 1));
  EXPECT_THAT(*VectorOf("dim: 1", "4"), ElementsAre(4));
}

TEST(FeatureSchemaTest, AVectorOfAnotherLengthMakesItsLineMalformed) {
  const auto error = [](const std::string& numeric, const std::string& cell) {
    const auto vector = VectorOf(numeric, cell);
    EXPECT_EQ(vector.status().code(), absl::StatusCode::kInvalidArgument) << cell;
    return std::string(vector.status().message());
  };
  const char bars[] = "dim: 3 multi_value_delimiter: '|'";
  EXPECT_THAT(error(bars, "1|2"), AllOf(HasSubstr("\"v\""), HasSubstr("\"1|2\""),
                                        HasSubstr("2 values"), HasSubstr("dim is 3")));
  EXPECT_THAT(error(bars, "1|2|3|4"), HasSubstr("4 values"));
  EXPECT_THAT(error(bars, "1|2|3|"), HasSubstr("4 values"));
  EXPECT_THAT(error(bars, "[]"), HasSubstr("0 values"));
  EXPECT_THAT(error("dim: 2", "4"), HasSubstr("multi_value_delimiter"));
  EXPECT_THAT(error(bars, "1|x|3"), AllOf(HasSubstr("\"x\""), HasSubstr("not a finite number")));
  EXPECT_THAT(error(bars, "1|1e300|3"), HasSubstr("too large"));
  EXPECT_THAT(error(bars, "1|nan|3"), HasSubstr("not a finite number"));
}

TEST(FeatureSchemaTest, TypedCellsAreVectors) {
  const JobConfig job = JobForTest(
      "data { format: JSON_LINES label { column: 'y' } csv { missing: '?' } } "
      "features { name: 'v' numeric { dim: 2 default_value: 9 } }");
  const auto schema = SchemaForTest(job);
  const auto append = [&](const Cell& cell, Batch* batch) {
    const Cell cells[] = {Cell::Integer(1), Cell(), cell};
    bool scratch[3];
    ExampleCells example;
    example.typed = cells;
    example.scratch = scratch;
    return schema->AppendExample(example, true, batch);
  };
  Batch batch = EmptyBatch(*schema);
  const double weights[] = {1, 1};
  for (const auto& [a, b] :
       {std::pair(Cell::Double(0.5), Cell::Integer(-3)), std::pair(Cell(), Cell::Double(NAN)),
        std::pair(Cell::Text("?"), Cell::Text("2.5")), std::pair(Cell::Bool(true), Cell())}) {
    const Cell values[] = {a, b};
    EXPECT_TRUE(append(Cell::List(values, 2), &batch).ok());
    EXPECT_FALSE(append(Cell::List(values, 1), &batch).ok());
    EXPECT_FALSE(append(Cell::List(values, 2, weights), &batch).ok());
  }
  EXPECT_TRUE(append(Cell(), &batch).ok());
  EXPECT_THAT(batch.numeric, ElementsAre(0.5, -3, 9, 9, 9, 2.5, 1, 9, 9, 9));
}

TEST(FeatureSchemaTest, BucketsIncludeTheirLowerBoundary) {
  const auto schema = SchemaForTest(
      FeaturesForTest("features { name: 'c' numeric { boundaries: -1 boundaries: 2 } }"));
  auto keys = [&](const std::string& cell) {
    return KeysOf(ExampleForTest(*schema, {{"c", cell}}), 0, 0);
  };
  EXPECT_THAT(keys("-1.5"), ElementsAre(Key("0")));
  EXPECT_THAT(keys("-1"), ElementsAre(Key("1")));
  EXPECT_THAT(keys("1.999"), ElementsAre(Key("1")));
  EXPECT_THAT(keys("2"), ElementsAre(Key("2")));
  EXPECT_THAT(keys("1e30"), ElementsAre(Key("2")));
  EXPECT_THAT(KeysOf(ExampleForTest(*schema, {}), 0, 0), IsEmpty());
  EXPECT_TRUE(ExampleForTest(*schema, {{"c", "1"}}).numeric.empty());
}

TEST(FeatureSchemaTest, KeepNumericKeepsNumberAndBucket) {
  const auto schema = SchemaForTest(FeaturesForTest(
      "features { name: 'c' numeric { boundaries: 2 keep_numeric: true min_max { max: 10 } } }"));
  const Batch batch = ExampleForTest(*schema, {{"c", "5"}});
  EXPECT_THAT(batch.numeric, ElementsAre(0.5f));
  EXPECT_THAT(batch.keys, ElementsAre(Key("1")));
}

TEST(FeatureSchemaTest, CategoriesHashWithTheirSlot) {
  EXPECT_THAT(Keys("", "a"), ElementsAre(Key("a")));
  EXPECT_NE(Key("a"), ValueKey("a", SlotSeed("d")));
  EXPECT_NE(Key("a"), Key("b"));
}

TEST(FeatureSchemaTest, ValuesOutsideTheVocabularyShareOneKey) {
  const std::string vocabulary = "vocabulary: 'a' vocabulary: 'b'";
  EXPECT_THAT(Keys(vocabulary, "a"), ElementsAre(Key("a")));
  EXPECT_THAT(Keys(vocabulary, "z"), ElementsAre(OutOfVocabularyKey(SlotSeed("c"))));
  EXPECT_EQ(Keys(vocabulary, "z"), Keys(vocabulary, "zz"));
}

TEST(FeatureSchemaTest, MultiValuedCellsGiveOneKeyPerValue) {
  const std::string multi = "multi_value_delimiter: '|'";
  EXPECT_THAT(Keys(multi, "a|b"), ElementsAre(Key("a"), Key("b")));
  EXPECT_THAT(Keys(multi, "a"), ElementsAre(Key("a")));
  EXPECT_THAT(Keys(multi, "|a||b|"), ElementsAre(Key("a"), Key("b")));
  EXPECT_THAT(Keys(multi, "||"), IsEmpty());
}

TEST(FeatureSchemaTest, PartsOfACellAreTrimmedAndMayBeMissing) {
  const auto keys = [](const std::string& data, const std::string& feature,
                       const std::string& cell) {
    const auto schema =
        SchemaForTest(JobForTest("data { label { column: 'y' } " + data +
                                 " } features { name: 'c' categorical { " + feature + " } }"));
    return KeysOf(ExampleForTest(*schema, {{"c", cell}}), 0, 0);
  };
  const auto key = [](const std::string& value) { return ValueKey(value, SlotSeed("c")); };
  const std::string csv = "format: CSV csv { missing: '?' missing: 'NA' }";
  const std::string bar = "multi_value_delimiter: '|'";
  EXPECT_THAT(keys(csv, bar, "a | b\t|?| NA |"), ElementsAre(key("a"), key("b")));
  EXPECT_THAT(keys(csv, bar, "? | NA"), IsEmpty());
  EXPECT_THAT(keys(csv, bar + " missing_is_value: true", "?|"),
              ElementsAre(MissingKey(SlotSeed("c"))));
  EXPECT_THAT(keys("format: CSV csv { trim: false }", bar, "a | b"),
              ElementsAre(key("a "), key(" b")));
  const std::string comma = "multi_value_delimiter: ','";
  EXPECT_THAT(keys(csv, comma, "['a', \"b\", 7]"), ElementsAre(key("a"), key("b"), key("7")));
  EXPECT_THAT(keys(csv, comma, "['it\\'s, so', 'NA']"), ElementsAre(key("it's, so")));
  EXPECT_THAT(keys(csv, comma, "[]"), IsEmpty());
  EXPECT_THAT(keys(csv, comma, "[a, b]"), ElementsAre(key("[a"), key("b]")));
  EXPECT_THAT(keys(csv, bar, "['a', 'b']"), ElementsAre(key("['a', 'b']")));
}

TEST(FeatureSchemaTest, ValuesMayHaveWeights) {
  FeatureUse use;
  use.key_weights = true;
  const auto schema_of = [&](const std::string& feature) {
    const auto schema = FeatureSchema::Create(
        FeaturesForTest("features { name: 'c' categorical { multi_value_delimiter: '|' " + feature +
                        " weight_delimiter: ':' } } features { name: 'd' categorical {} }"),
        use);
    EXPECT_TRUE(schema.ok()) << schema.status();
    return *schema;
  };
  const auto key = [](const std::string& value) { return ValueKey(value, SlotSeed("c")); };
  const auto schema = schema_of("");
  EXPECT_TRUE(schema->weighted());
  EXPECT_TRUE(schema->slots()[0].weighted);
  EXPECT_FALSE(schema->slots()[1].weighted);
  const Batch batch = ExampleForTest(*schema, {{"c", "a:0.5|b| c : -2 |x:y:3"}, {"d", "a:9"}});
  EXPECT_THAT(KeysOf(batch, 0, 0), ElementsAre(key("a"), key("b"), key("c"), key("x:y")));
  EXPECT_THAT(batch.key_weights, ElementsAre(0.5f, 1, -2, 3, 1));
  Batch bad = EmptyBatch(*schema);
  for (const char* cell : {"a:", "a:x", "a:1e39", "b:1|a:nan"}) {
    EXPECT_THAT(std::string(AppendForTest(*schema, {{"y", "1"}, {"c", cell}}, &bad).message()),
                HasSubstr("weight"))
        << cell;
    EXPECT_TRUE(bad.key_weights.empty());
  }
  const auto mean = schema_of("pooling: MEAN");
  EXPECT_THAT(std::string(AppendForTest(*mean, {{"y", "1"}, {"c", "a:-1"}}, &bad).message()),
              HasSubstr("MEAN"));
  EXPECT_THAT(
      CreateError(FeaturesForTest("features { name: 'c' categorical { weight_delimiter: ':' "
                                  "} } features { name: 'd' categorical {} } features { "
                                  "name: 'x' cross { features: ['c', 'd'] } }"),
                  use),
      HasSubstr("cross"));
}

TEST(FeatureSchemaTest, NumbersThatAreNoneNameTheOptionThatReadsThem) {
  const auto schema = SchemaForTest(FeaturesForTest("features { name: 'n' numeric {} }"));
  Batch batch = EmptyBatch(*schema);
  const auto error = [&](const std::string& cell) {
    return std::string(AppendForTest(*schema, {{"y", "1"}, {"n", cell}}, &batch).message());
  };
  EXPECT_THAT(error("NA"), HasSubstr("data.csv.missing: \"NA\""));
  EXPECT_THAT(error("?"), HasSubstr("data.csv.missing"));
  EXPECT_THAT(error("0,5"), HasSubstr("data.csv.decimal_mark"));
  EXPECT_THAT(error("1,234.5"), HasSubstr("thousands"));
  EXPECT_THAT(error("1,234,567"), HasSubstr("thousands"));
  EXPECT_THAT(error("2014-10-21"), HasSubstr("date_part"));
  JobConfig comma = FeaturesForTest("features { name: 'n' numeric {} }");
  comma.mutable_data()->mutable_csv()->set_decimal_mark(",");
  EXPECT_EQ(ExampleForTest(*SchemaForTest(comma), {{"n", "0,5"}}).numeric[0], 0.5f);
}

TEST(FeatureSchemaTest, HashBucketsBoundTheNumberOfKeys) {
  std::vector<uint64_t> seen;
  for (int i = 0; i < 200; ++i) {
    const auto keys = Keys("hash_buckets: 3", std::to_string(i));
    ASSERT_EQ(keys.size(), 1u);
    if (std::find(seen.begin(), seen.end(), keys[0]) == seen.end()) seen.push_back(keys[0]);
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(FeatureSchemaTest, UnknownAndMissingValuesShareNoBucketWithAWordWhileOneIsFree) {
  int folded = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string word = "w" + std::to_string(i);
    const std::string two = "hash_buckets: 2 vocabulary: '" + word + "' ";
    EXPECT_NE(Keys(two + "separate_unknown: true", word),
              Keys(two + "separate_unknown: true", "z"));
    // A word keeps its key.
    EXPECT_EQ(Keys(two + "separate_unknown: true", word), Keys(two, word));
    const bool folds = Keys(two, word) == Keys(two, "z");
    folded += folds;
    JobConfig job = FeaturesForTest("features { name: 'c' categorical {" + two + "} }");
    SeparateUnknownValues(&job);
    EXPECT_EQ(job.features(0).categorical().has_separate_unknown(), folds);
    // With more buckets than words, unknown and missing values all differ.
    const auto schema = SchemaForTest(
        FeaturesForTest("features { name: 'c' categorical { hash_buckets: 3 missing_is_value: true "
                        "separate_unknown: true vocabulary: '" +
                        word + "' } }"));
    std::set<uint64_t> keys;
    for (const char* const cell : {word.c_str(), "z"})
      keys.insert(ExampleForTest(*schema, {{"c", cell}}).keys.at(0));
    keys.insert(ExampleForTest(*schema, {}).keys.at(0));
    EXPECT_EQ(keys.size(), 3u) << word;
  }
  EXPECT_GT(folded, 5) << "the test needs collisions";
  // With a bucket for each word and none left, unknown values fold.
  EXPECT_EQ(Keys("hash_buckets: 1 separate_unknown: true vocabulary: 'a'", "z"),
            Keys("hash_buckets: 1 vocabulary: 'a'", "a"));
}

TEST(FeatureSchemaTest, MissingCategoryHasNoKeyUnlessItIsAValue) {
  auto missing = [](const std::string& text) {
    const auto schema =
        SchemaForTest(FeaturesForTest("features { name: 'c' categorical {" + text + "} }"));
    return KeysOf(ExampleForTest(*schema, {}), 0, 0);
  };
  EXPECT_THAT(missing(""), IsEmpty());
  EXPECT_THAT(missing("missing_is_value: true"), ElementsAre(MissingKey(SlotSeed("c"))));
  EXPECT_THAT(missing("missing_is_value: true multi_value_delimiter: '|'"),
              ElementsAre(MissingKey(SlotSeed("c"))));
}

TEST(FeatureSchemaTest, DatePartsAreValues) {
  EXPECT_THAT(Keys("date_part: DAY_OF_WEEK", "2001-01-01 00:01"), ElementsAre(Key("1")));
  EXPECT_THAT(Keys("date_part: HOUR", "2001-01-01 09:59"), ElementsAre(Key("9")));
}

TEST(FeatureSchemaTest, CrossWithAMissingPartHasNoKey) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "a" categorical {} }
      features { name: "b" categorical { missing_is_value: true } }
      features { name: "x" cross { features: "a" features: "b" } })"));
  EXPECT_THAT(KeysOf(ExampleForTest(*schema, {{"b", "1"}}), 0, 2), IsEmpty());
  const uint64_t a = ValueKey("1", SlotSeed("a")), b = MissingKey(SlotSeed("b"));
  EXPECT_THAT(KeysOf(ExampleForTest(*schema, {{"a", "1"}}), 0, 2),
              ElementsAre(CombineHash(CombineHash(SlotSeed("x"), a), b)));
}

TEST(FeatureSchemaTest, OrderOfACrossMatters) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "a" categorical {} }
      features { name: "b" categorical {} }
      features { name: "x" cross { features: "a" features: "b" } })"));
  const auto one = KeysOf(ExampleForTest(*schema, {{"a", "1"}, {"b", "2"}}), 0, 2);
  const auto two = KeysOf(ExampleForTest(*schema, {{"a", "2"}, {"b", "1"}}), 0, 2);
  EXPECT_NE(one, two);
}

TEST(FeatureSchemaTest, WeightsAreReadAndChecked) {
  JobConfig job = FeaturesForTest("features { name: 'c' categorical {} }");
  job.mutable_data()->set_weight_column("w");
  const auto schema = SchemaForTest(job);
  EXPECT_THAT(ExampleForTest(*schema, {{"w", "2.5"}}).weight, ElementsAre(2.5f));
  EXPECT_THAT(ExampleForTest(*schema, {{"w", "0"}}).weight, ElementsAre(0));
  EXPECT_THAT(ExampleForTest(*schema, {{"w", "1e12"}}).weight, ElementsAre(1e12f));
  EXPECT_THAT(ExampleForTest(*schema, {{"w", "1e-15"}}).weight, ElementsAre(1e-15f));
  Batch batch = EmptyBatch(*schema);
  for (const char* bad : {"-1", "x", "nan", "1e300", "2e12", "1e-16"}) {
    EXPECT_THAT(std::string(AppendForTest(*schema, {{"y", "1"}, {"w", bad}}, &batch).message()),
                HasSubstr("\"w\""))
        << bad;
  }
  EXPECT_THAT(std::string(AppendForTest(*schema, {{"y", "1"}}, &batch).message()),
              HasSubstr("missing"));
  EXPECT_EQ(batch.n, 0u);
}

TEST(FeatureSchemaTest, PredictionNeedsNoLabelAndNoWeight) {
  JobConfig job = FeaturesForTest("features { name: 'c' categorical {} }");
  job.mutable_data()->set_weight_column("w");
  const auto schema = SchemaForTest(job);
  Batch batch = EmptyBatch(*schema);
  EXPECT_TRUE(AppendForTest(*schema, {{"c", "a"}}, &batch, false).ok());
  EXPECT_TRUE(
      AppendForTest(*schema, {{"c", "a"}, {"y", "unheard of"}, {"w", "x"}}, &batch, false).ok());
  EXPECT_TRUE(AppendForTest(*schema, {{"c", "a"}, {"y", "1"}, {"w", "2"}}, &batch, false).ok());
  EXPECT_THAT(batch.label, ElementsAre(0, 0, 1));
  EXPECT_THAT(batch.weight, ElementsAre(1, 1, 2));
}

TEST(FeatureSchemaTest, AllProblemsOfALineAreFound) {
  JobConfig job = FeaturesForTest(
      "features { name: 'a' numeric {} } features { name: 'b' numeric { boundaries: 1 } } "
      "features { name: 'c' categorical {} } "
      "features { name: 'x' cross { features: ['b', 'c'] } }");
  job.mutable_data()->set_weight_column("w");
  const auto schema = SchemaForTest(job);
  const auto problems = [&](const std::vector<std::string>& cells) {
    const std::map<std::string, std::string> by_name = {
        {"y", cells[0]}, {"w", cells[1]}, {"a", cells[2]}, {"b", cells[3]}, {"c", cells[4]}};
    std::vector<std::string_view> values;
    for (const std::string& column : schema->columns()) values.push_back(by_name.at(column));
    const std::unique_ptr<bool[]> missing(new bool[values.size()]());
    std::vector<std::string> found;
    for (const absl::Status& why : schema->FindProblems({values.data(), missing.get(), nullptr}))
      found.emplace_back(why.message());
    return found;
  };
  EXPECT_THAT(problems({"1", "1", "1", "1", "v"}), testing::IsEmpty());
  // The cell of b is used by its own slot and by the cross.
  EXPECT_THAT(problems({"no", "-1", "p", "q", "v"}),
              testing::ElementsAre(HasSubstr("\"no\""), HasSubstr("\"-1\""), HasSubstr("\"p\""),
                                   HasSubstr("\"q\"")));
}

TEST(FeatureSchemaTest, RefusedLineAppendsNothing) {
  const auto schema = SchemaForTest(FeaturesForTest(R"(
      features { name: "n" numeric {} }
      features { name: "c" categorical {} }
      features { name: "last" numeric { boundaries: 1 } })"));
  Batch batch = ExampleForTest(*schema, {{"n", "1"}, {"c", "a"}, {"last", "1"}});
  const Batch before = batch;
  const auto refused = [&](std::map<std::string, std::string> cells) {
    const absl::Status status = AppendForTest(*schema, cells, &batch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(batch.n, before.n);
    EXPECT_EQ(batch.label, before.label);
    EXPECT_EQ(batch.weight, before.weight);
    EXPECT_EQ(batch.numeric, before.numeric);
    EXPECT_EQ(batch.keys, before.keys);
    EXPECT_EQ(batch.key_offsets, before.key_offsets);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({{"y", "1"}, {"n", "1"}, {"c", "a"}, {"last", "nan"}}),
              AllOf(HasSubstr("\"last\""), HasSubstr("\"nan\""), HasSubstr("finite")));
  EXPECT_THAT(refused({{"y", "1"}, {"n", "1x"}}), AllOf(HasSubstr("\"n\""), HasSubstr("\"1x\"")));
  EXPECT_THAT(refused({{"y", "1"}, {"n", "1e200"}}), HasSubstr("too large"));
  EXPECT_THAT(refused({{"y", "2"}}), HasSubstr("\"y\""));
  EXPECT_THAT(refused({}), AllOf(HasSubstr("\"y\""), HasSubstr("missing")));
}

}  // namespace
}  // namespace sluice
