#include "model/features/dense_rows.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "model/features/feature_compiler.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;

FeatureUse DenseUse() {
  FeatureUse use;
  use.dense_rows = true;
  return use;
}

std::shared_ptr<const FeatureSchema> Dense(const std::string& features,
                                           const FeatureUse& use = DenseUse()) {
  auto schema = FeatureSchema::Create(FeaturesForTest(features), use);
  EXPECT_TRUE(schema.ok()) << schema.status();
  return schema.ok() ? *schema : nullptr;
}

// The keys of the only slot for a cell of column "c"; "" is missing.
std::vector<uint64_t> RowsOf(const FeatureSchema& schema, const std::string& cell) {
  return KeysOf(cell.empty() ? ExampleForTest(schema, {}) : ExampleForTest(schema, {{"c", cell}}),
                0, 0);
}

std::shared_ptr<const FeatureSchema> Category(const std::string& options) {
  return Dense("features { name: 'c' categorical { dense: true " + options + "} }");
}

TEST(DenseRowsTest, VocabularyValuesHaveRowsInTheirOrderAndAllOthersTheNext) {
  const auto schema = Category("vocabulary: ['x', 'a', 'm']");
  EXPECT_EQ(schema->slots()[0].rows.size(), 4u);
  EXPECT_THAT(RowsOf(*schema, "x"), ElementsAre(0));
  EXPECT_THAT(RowsOf(*schema, "a"), ElementsAre(1));
  EXPECT_THAT(RowsOf(*schema, "m"), ElementsAre(2));
  EXPECT_THAT(RowsOf(*schema, "other"), ElementsAre(3));
  EXPECT_THAT(RowsOf(*schema, "another"), ElementsAre(3));
  EXPECT_THAT(RowsOf(*schema, ""), IsEmpty());
}

TEST(DenseRowsTest, MissingValueOfAVocabularyHasTheLastRow) {
  const auto schema = Category("vocabulary: ['x', 'a'] missing_is_value: true");
  EXPECT_EQ(schema->slots()[0].rows.size(), 4u);
  EXPECT_THAT(RowsOf(*schema, "other"), ElementsAre(2));
  EXPECT_THAT(RowsOf(*schema, ""), ElementsAre(3));
}

// The rows of a hashed feature are its keys of the sparse table, in another notation.
TEST(DenseRowsTest, HashedValuesHaveTheRowOfTheirFoldedHash) {
  for (const std::string options :
       {"hash_buckets: 7", "hash_buckets: 7 missing_is_value: true",
        "hash_buckets: 7 vocabulary: ['1', '2'] missing_is_value: true"}) {
    const auto schema = Category(options);
    const auto sparse =
        SchemaForTest(FeaturesForTest("features { name: 'c' categorical {" + options + "} }"));
    EXPECT_EQ(schema->slots()[0].rows.size(), 7u);
    for (int i = 0; i < 40; ++i) {
      const std::string cell = i == 0 ? "" : std::to_string(i);
      const auto rows = RowsOf(*schema, cell), keys = RowsOf(*sparse, cell);
      ASSERT_EQ(rows.size(), keys.size());
      if (rows.empty()) continue;
      EXPECT_EQ(CombineHash(SlotSeed("c"), 3 + rows[0]), keys[0]) << options << " " << cell;
    }
  }
}

TEST(DenseRowsTest, BucketsHaveRowsInTheirOrder) {
  const auto schema =
      Dense("features { name: 'c' numeric { dense: true boundaries: -1 boundaries: 2 } }");
  EXPECT_EQ(schema->slots()[0].rows.size(), 3u);
  EXPECT_THAT(RowsOf(*schema, "-2"), ElementsAre(0));
  EXPECT_THAT(RowsOf(*schema, "-1"), ElementsAre(1));
  EXPECT_THAT(RowsOf(*schema, "2"), ElementsAre(2));
  EXPECT_THAT(RowsOf(*schema, ""), IsEmpty());
}

TEST(DenseRowsTest, SeveralValuesHaveARowEach) {
  const auto schema = Category("vocabulary: ['x', 'a'] multi_value_delimiter: '|'");
  EXPECT_THAT(RowsOf(*schema, "a|x|q|a"), ElementsAre(1, 0, 2, 1));
}

TEST(DenseRowsTest, DatePartsHaveTheRowOfTheirText) {
  const auto schema = Category("vocabulary: ['1', '2', '3'] date_part: DAY_OF_WEEK");
  EXPECT_THAT(RowsOf(*schema, "2001-01-02"), ElementsAre(1));
}

// Crosses hash their parts as those of the sparse table do, whatever rows the parts have.
TEST(DenseRowsTest, CrossesHaveTheRowOfTheirFoldedHash) {
  const auto features = [](const char* dense) {
    return absl::StrCat("features { name: 'a' categorical { vocabulary: ['p', 'q'] ", dense,
                        "} } features { name: 'n' numeric { boundaries: 1 ", dense,
                        "} } features { name: 'x' cross { features: ['a', 'n'] hash_buckets: 11 ",
                        dense, "} }");
  };
  const auto dense = Dense(features("dense: true"));
  const auto sparse = SchemaForTest(FeaturesForTest(features("")));
  const RowRange rows = dense->slots()[2].rows;
  EXPECT_EQ(rows.size(), 11u);
  std::set<uint64_t> seen;
  for (const char* a : {"p", "q", "r"}) {
    for (const char* n : {"0", "3"}) {
      const auto row = KeysOf(ExampleForTest(*dense, {{"a", a}, {"n", n}}), 0, 2);
      const auto key = KeysOf(ExampleForTest(*sparse, {{"a", a}, {"n", n}}), 0, 2);
      ASSERT_EQ(row.size(), 1u);
      EXPECT_THAT(row, Each(AllOf(Ge(rows.begin), Lt(rows.end))));
      EXPECT_EQ(CombineHash(SlotSeed("x"), 3 + row[0] - rows.begin), key[0]);
      seen.insert(row[0]);
    }
  }
  EXPECT_GT(seen.size(), 2u);
}

TEST(DenseRowsTest, RowsOfEachPartFollowEachOther) {
  const std::string features = R"(
      features { name: "wide" in_deep: false categorical { dense: true hash_buckets: 5 } }
      features { name: "both" categorical { dense: true hash_buckets: 10 } }
      features { name: "deep" in_wide: false categorical { dense: true hash_buckets: 20 } }
      features { name: "both2" numeric { dense: true boundaries: 0 } }
      features { name: "part" in_wide: false in_deep: false categorical {} }
      features { name: "x" in_deep: false cross { features: ["both", "part"] dense: true hash_buckets: 40 } })";
  std::map<std::string, std::pair<uint64_t, uint64_t>> places;
  const auto schema = Dense(features);
  for (const FeatureSchema::Slot& slot : schema->slots())
    places[slot.name] = {slot.rows.begin, slot.rows.end};
  const std::map<std::string, std::pair<uint64_t, uint64_t>> expected = {{"deep", {0, 20}},
                                                                         {"both", {20, 30}},
                                                                         {"both2", {30, 32}},
                                                                         {"wide", {32, 37}},
                                                                         {"x", {37, 77}}};
  EXPECT_EQ(places, expected);
  const Batch batch = ExampleForTest(
      *schema, {{"wide", "1"}, {"both", "1"}, {"deep", "1"}, {"both2", "3"}, {"part", "1"}});
  ASSERT_EQ(batch.keys.size(), 5u);
  EXPECT_THAT(batch.keys[0], AllOf(Ge(32u), Lt(37u)));
  EXPECT_THAT(batch.keys[1], AllOf(Ge(20u), Lt(30u)));
  EXPECT_THAT(batch.keys[2], Lt(20u));
  EXPECT_EQ(batch.keys[3], 31u);
  EXPECT_THAT(batch.keys[4], AllOf(Ge(37u), Lt(77u)));
}

TEST(DenseRowsTest, ModelsWithoutDenseRowsRefuseThem) {
  EXPECT_THAT(CreateError(FeaturesForTest(
                  "features { name: 'c' categorical { hash_buckets: 3 dense: true } }")),
              AllOf(HasSubstr("\"c\""), HasSubstr("dense")));
}

struct Case {
  std::string features;
  std::string path;
  std::vector<std::string> said;
};

TEST(DenseRowsTest, ProblemsNameTheFieldsAndTheFix) {
  const std::string big =
      "features { name: 'big' categorical { hash_buckets: 1500000000 dense: true } }";
  const std::vector<Case> cases = {
      {"features { name: 'a' categorical { hash_buckets: 5 dense: true } }"
       "features { name: 'n' numeric {} }"
       "features { name: 'b' numeric { boundaries: 1 } }",
       "features[2].numeric.dense",
       {"'a'", "'b'", "or none"}},
      {"features { name: 'a' categorical {} }"
       "features { name: 'b' categorical { hash_buckets: 5 dense: true } }",
       "features[0].categorical.dense",
       {"'a'", "'b'"}},
      {"features { name: 'a' categorical { dense: true } }",
       "features[0].categorical.dense",
       {"hash_buckets", "vocabulary"}},
      {"features { name: 'a' categorical { hash_buckets: 5 dense: true } }"
       "features { name: 'b' categorical { hash_buckets: 5 dense: true } }"
       "features { name: 'x' cross { features: ['a', 'b'] dense: true } }",
       "features[2].cross.dense",
       {"hash_buckets"}},
      {"features { name: 'n' numeric { dense: true } }",
       "features[0].numeric.dense",
       {"boundaries"}},
      {"features { name: 'a' in_wide: false in_deep: false categorical { hash_buckets: 5 dense: "
       "true } }"
       "features { name: 'b' categorical { hash_buckets: 5 dense: true } }"
       "features { name: 'x' cross { features: ['a', 'b'] dense: true hash_buckets: 5 } }",
       "features[0].categorical.dense",
       {"only crosses"}},
      {big +
           "features { name: 'c' categorical { hash_buckets: 18446744073709551615 dense: true } }",
       "features[1].categorical.dense",
       {"'c'", "2147483648", "sparse"}},
      {big + "features { name: 'c' categorical { hash_buckets: 1500000000 dense: true } }" +
           "features { name: 'd' categorical { hash_buckets: 1500000000 dense: true } }",
       "features[1].categorical.dense",
       {"2147483648"}},
  };
  for (const Case& c : cases) {
    const JobConfig job = FeaturesForTest(c.features);
    const std::vector<ConfigProblem> problems = FindDenseProblems(job);
    ASSERT_EQ(problems.size(), 1u) << c.features;
    EXPECT_EQ(problems[0].path, c.path);
    for (const std::string& part : c.said) EXPECT_THAT(problems[0].text, HasSubstr(part));
    // Also a schema that no rules have checked.
    EXPECT_EQ(FieldOf(FeatureSchema::Create(job, DenseUse()).status()), c.path);
  }
}

TEST(DenseRowsTest, GoodFeaturesHaveNoProblems) {
  for (const std::string features :
       {"features { name: 'n' numeric {} } features { name: 'c' categorical {} }",
        "features { name: 'n' numeric {} } features { name: 'c' categorical { vocabulary: 'a' "
        "dense: true } }",
        "features { name: 'a' in_wide: false in_deep: false categorical {} }"
        "features { name: 'b' categorical { hash_buckets: 5 dense: true } }"
        "features { name: 'x' cross { features: ['a', 'b'] dense: true hash_buckets: 5 } }",
        "features { name: 'b' categorical { hash_buckets: 2147483648 dense: true } }"}) {
    EXPECT_THAT(FindDenseProblems(FeaturesForTest(features)), IsEmpty()) << features;
  }
}

}  // namespace
}  // namespace sluice
