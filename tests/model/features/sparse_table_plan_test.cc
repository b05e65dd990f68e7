#include "model/features/sparse_table_plan.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config_problem.h"
#include "gmock/gmock.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

FeatureUse UseOfWidth8() {
  FeatureUse use;
  use.embedding_dim = 8;
  return use;
}

// "NAME WIDTH: features", or "NAME WIDTH RAW: features", by table.
std::vector<std::string> TablesOf(const std::string& features,
                                  const FeatureUse& use = UseOfWidth8()) {
  const auto plan = PlanSparseTables(FeaturesForTest(features), use);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> tables;
  if (!plan.ok()) return tables;
  for (const SparseTablePlan::Table& table : plan->tables) {
    tables.push_back(absl::StrCat(table.name, " ", table.width,
                                  table.key == Feature::RAW ? " RAW: " : ": ",
                                  absl::StrJoin(table.features, " ")));
  }
  return tables;
}

std::string Categories(const std::string& names) {
  return absl::StrCat("features { name: '", names, "' categorical {} } ");
}

// Names and contents of tables are part of every saved model: none of these may ever change.
TEST(SparseTablePlanTest, OneWidthIsOneTable) {
  EXPECT_THAT(TablesOf(R"(
      features { name: "age" numeric {} }
      features { name: "old" numeric { boundaries: 30 } in_wide: false }
      features { name: "part" categorical {} in_wide: false in_deep: false }
      features { name: "city" categorical {} in_deep: false }
      features { name: "job" categorical { hash_buckets: 9 } embedding_dim: 8 }
      features { name: "x" cross { features: ["part", "city"] } })"),
              ElementsAre("embedding 8: old city job x"));
}

TEST(SparseTablePlanTest, EachWidthIsATable) {
  EXPECT_THAT(TablesOf(R"(
      features { name: "a" categorical {} }
      features { name: "b" categorical {} embedding_dim: 4 }
      features { name: "c" categorical {} embedding_dim: 16 in_deep: false }
      features { name: "d" numeric { boundaries: 1 } embedding_dim: 4 }
      features { name: "e" categorical {} embedding_dim: 8 })"),
              ElementsAre("embedding_8 8: a e", "embedding_4 4: b d", "embedding_16 16: c"));
}

TEST(SparseTablePlanTest, ATableThatANameSeparatesLeavesTheOthersTheirName) {
  EXPECT_THAT(TablesOf(R"(
      features { name: "a" categorical {} }
      features { name: "b" categorical {} table: "big" }
      features { name: "c" categorical {} table: "big" })"),
              ElementsAre("embedding 8: a", "big 8: b c"));
  EXPECT_THAT(TablesOf(R"(
      features { name: "a" categorical {} table: "wide-16.0" embedding_dim: 16 }
      features { name: "b" categorical {} })"),
              ElementsAre("wide-16.0 16: a", "embedding 8: b"));
}

TEST(SparseTablePlanTest, ASharedEmbeddingNamesItsTableOnlyIfItIsAlone) {
  EXPECT_THAT(TablesOf(R"(
      features { name: "user" categorical {} }
      features { name: "shown" categorical {} embedding: "item" }
      features { name: "bought" categorical { multi_value_delimiter: "|" } embedding: "item" })"),
              ElementsAre("embedding 8: user shown bought"));
  EXPECT_THAT(TablesOf(R"(
      features { name: "user" categorical {} }
      features { name: "shown" categorical {} embedding: "item" embedding_dim: 16 }
      features { name: "bought" categorical {} embedding: "item" embedding_dim: 16 })"),
              ElementsAre("embedding 8: user", "item 16: shown bought"));
  // A feature's own name is no `embedding`.
  EXPECT_THAT(TablesOf(R"(
      features { name: "item" categorical {} }
      features { name: "bought" categorical {} embedding: "item" })"),
              ElementsAre("embedding 8: item bought"));
  EXPECT_THAT(TablesOf(R"(
      features { name: "bought" categorical {} embedding: "item" }
      features { name: "seen" categorical {} embedding: "item" }
      features { name: "by" categorical {} embedding: "user" embedding_dim: 2 table: "t" })"),
              ElementsAre("item 8: bought seen", "t 2: by"));
}

TEST(SparseTablePlanTest, RawFeaturesShareATableOnlyWithTheirEmbedding) {
  EXPECT_THAT(TablesOf(R"(
      features { name: "city" categorical {} }
      features { name: "user" categorical {} key: RAW }
      features { name: "item" categorical {} key: RAW }
      features { name: "bought" categorical {} key: RAW embedding: "item" }
      features { name: "shop" categorical {} key: RAW table: "shops" embedding_dim: 4 }
      features { name: "x" cross { features: ["user", "city"] } })"),
              ElementsAre("embedding 8: city x", "user 8 RAW: user", "item 8 RAW: item bought",
                          "shops 4 RAW: shop"));
}

TEST(SparseTablePlanTest, WithoutADeepPartRowsHaveNoWidth) {
  FeatureUse use = UseOfWidth8();
  use.keys.deep = false;
  EXPECT_THAT(TablesOf("features { name: 'a' categorical {} embedding_dim: 16 } "
                       "features { name: 'b' categorical {} } "
                       "features { name: 'c' categorical {} in_wide: false }",
                       use),
              ElementsAre("embedding 0: a b"));
}

TEST(SparseTablePlanTest, DenseFeaturesAndNumbersAreInNoTable) {
  EXPECT_THAT(TablesOf("features { name: 'a' categorical { hash_buckets: 5 dense: true } } "
                       "features { name: 'n' numeric {} }"),
              testing::IsEmpty());
}

// Without a width of the model, features outside the deep part have none of their own.
TEST(SparseTablePlanTest, FeaturesThatNeedNoWidthJoinTheFirstTableOfTheirKind) {
  EXPECT_THAT(
      TablesOf(R"(
      features { name: "a" categorical {} in_deep: false }
      features { name: "b" categorical {} embedding_dim: 4 }
      features { name: "c" categorical {} embedding_dim: 16 }
      features { name: "d" categorical {} in_deep: false embedding: "c" }
      features { name: "e" categorical {} in_deep: false table: "t" }
      features { name: "f" categorical {} embedding_dim: 2 table: "t" }
      features { name: "r" categorical {} in_deep: false key: RAW }
      features { name: "s" categorical {} embedding_dim: 2 key: RAW embedding: "r" })",
               FeatureUse()),
      ElementsAre("embedding_4 4: a b", "embedding_16 16: c d", "t 2: e f", "r 2 RAW: r s"));
  EXPECT_THAT(TablesOf("features { name: 'a' categorical {} in_deep: false } "
                       "features { name: 'r' categorical {} embedding_dim: 4 key: RAW }",
                       FeatureUse()),
              ElementsAre("embedding 0: a", "r 4 RAW: r"));
}

TEST(SparseTablePlanTest, OptionsThatDoNotChangeKeysMayDifferInASharedEmbedding) {
  EXPECT_THAT(TablesOf(R"(
      features { name: "a" categorical { vocabulary: ["x", "y"] } embedding: "e" }
      features { name: "b" categorical { vocabulary: ["y", "x"] multi_value_delimiter: "|"
                                         pooling: MEAN column: "c" } embedding: "e" }
      features { name: "m" numeric { boundaries: [1, 2] log: true } embedding: "n" }
      features { name: "n" numeric { boundaries: [1, 2] default_value: 3 } }
      features { name: "x" cross { features: ["a", "m"] } embedding: "z" }
      features { name: "y" cross { features: ["b", "n"] } embedding: "z" })"),
              ElementsAre("embedding 8: a b m n x y"));
}

TEST(SparseTablePlanTest, TheFieldThatNamesATableIsKnown) {
  const auto plan = PlanSparseTables(
      FeaturesForTest(Categories("a") + "features { name: 'b' categorical {} table: 't' } "
                                        "features { name: 'c' categorical {} key: RAW } "
                                        "features { name: 'd' categorical {} embedding: 'e' "
                                        "embedding_dim: 2 }"),
      UseOfWidth8());
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> fields;
  for (const SparseTablePlan::Table& table : plan->tables) fields.push_back(table.named_by);
  EXPECT_THAT(fields, ElementsAre("features[0].name", "features[1].table", "features[2].name",
                                  "features[3].embedding"));
}

TEST(SparseTablePlanTest, TableOfIsByFeature) {
  const auto plan = PlanSparseTables(
      FeaturesForTest("features { name: 'n' numeric {} }" + Categories("a") +
                      "features { name: 'r' categorical {} key: RAW }" + Categories("b")),
      UseOfWidth8());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->table_of, ElementsAre(0, 0, 1, 0));
}

// Features "a" and "b" that share an embedding.
std::string Shared(const std::string& a, const std::string& b) {
  return absl::StrCat("features { name: 'a' embedding: 'e' ", a,
                      " } features { name: 'b' embedding: 'e' ", b, " } ");
}

struct BadPlan {
  std::string features;
  std::string field;
  std::vector<std::string> said;
};

TEST(SparseTablePlanTest, FeaturesThatContradictEachOtherAreRefusedByName) {
  const std::string a = "features { name: 'a' categorical {} embedding: 'item' ";
  const std::string t = "features { name: 'a' categorical {} table: 't' ";
  const auto b = [](const std::string& more) {
    return "} features { name: 'b' " + more +
           (more.find("cross") == std::string::npos ? " categorical {} }" : " }");
  };
  for (const BadPlan& bad : std::vector<BadPlan>{
           {a + b("embedding: 'item' embedding_dim: 4"),
            "features[1].embedding_dim",
            {"\"b\"", "\"a\"", "\"item\"", "4", "8"}},
           {a + b("embedding: 'item' key: RAW"), "features[1].key", {"\"a\"", "RAW", "HASHED"}},
           {a + b("embedding: 'item' table: 'x'"), "features[1].table", {"\"a\"", "\"x\""}},
           // A feature's own name is that of its embedding.
           {Categories("b") + "features { name: 'c' categorical {} embedding: 'b' key: RAW }",
            "features[1].key",
            {"\"c\"", "\"b\""}},
           {"features { name: 'a' categorical { hash_buckets: 9 } embedding: 'item' } "
            "features { name: 'b' categorical {} embedding: 'item' }",
            "features[1].categorical.hash_buckets",
            {"\"a\"", "9", "0"}},
           {a + "} " + Categories("c") +
                "features { name: 'x' cross { features: ['a', 'c'] } embedding: 'item' }",
            "features[2].embedding",
            {"\"x\"", "\"a\"", "cross"}},
           {Shared("categorical {}", "numeric { boundaries: 1 }"),
            "features[1].embedding",
            {"\"b\"", "\"a\"", "bucketed", "categorical"}},
           {Shared("categorical { vocabulary: ['x', 'y'] }", "categorical { vocabulary: 'x' }"),
            "features[1].categorical.vocabulary",
            {"\"a\"", "\"y\""}},
           {Shared("categorical {}", "categorical { vocabulary: 'x' }"),
            "features[1].categorical.vocabulary",
            {"\"b\" has \"x\""}},
           {Shared("categorical { date_part: MONTH }", "categorical { date_part: YEAR }"),
            "features[1].categorical.date_part",
            {"MONTH", "YEAR"}},
           {Shared("categorical { date_part: MONTH date_format: '%Y' }",
                   "categorical { date_part: MONTH date_format: '%y' }"),
            "features[1].categorical.date_format",
            {"%Y", "%y"}},
           {Shared("categorical { vocabulary: 'x' hash_buckets: 9 separate_unknown: true }",
                   "categorical { vocabulary: 'x' hash_buckets: 9 }"),
            "features[1].categorical.separate_unknown",
            {"true", "false"}},
           {Shared("categorical { missing_is_value: true }", "categorical {}"),
            "features[1].categorical.missing_is_value",
            {"true", "false"}},
           {Shared("numeric { boundaries: [1, 2] }", "numeric { boundaries: [1, 3] }"),
            "features[1].numeric.boundaries",
            {"boundaries[1]", "2", "3"}},
           {Shared("numeric { boundaries: [1, 2] }", "numeric { boundaries: 1 }"),
            "features[1].numeric.boundaries",
            {"boundaries[1]", "2", "missing"}},
           {Shared("numeric { boundaries: 1 date_part: MONTH }",
                   "numeric { boundaries: 1 date_part: HOUR }"),
            "features[1].numeric.date_part",
            {"MONTH", "HOUR"}},
           {Shared("cross { features: ['c', 'd'] }", "cross { features: ['d', 'c'] }") +
                Categories("c") + Categories("d"),
            "features[1].cross.features",
            {"c x d", "d x c"}},
           {t + b("table: 't' embedding_dim: 4"), "features[1].embedding_dim", {"\"t\"", "4"}},
           {t + b("table: 't' key: RAW"), "features[1].key", {"\"t\"", "\"a\""}},
           {t + "key: RAW" + b("table: 't' key: RAW"),
            "features[1].embedding",
            {"\"t\"", "\"a\"", "\"b\""}},
           // Two tables of one name.
           {Categories("a") + "features { name: 'b' categorical {} table: 'embedding' }",
            "features[1].table",
            {"\"embedding\"", "\"a\"", "another `table`"}},
           {Categories("a") + "features { name: 'embedding' categorical {} key: RAW }",
            "features[1].name",
            {"\"embedding\"", "\"a\""}},
           // Names that are no file names.
           {"features { name: 'a/b' categorical {} key: RAW }",
            "features[0].name",
            {"\"a/b\"", "`table`", "A-Z"}},
           {"features { name: 'a' categorical {} table: '.x' }", "features[0].table", {"\".x\""}},
           {"features { name: 'a' categorical {} table: 'deep/0/bias' }",
            "features[0].table",
            {"deep/0/bias"}},
           {"features { name: 'a' categorical {} embedding: 'a b' embedding_dim: 2 }",
            "features[0].embedding",
            {"\"a b\""}}}) {
    const absl::Status status =
        PlanSparseTables(FeaturesForTest(bad.features), UseOfWidth8()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.features;
    EXPECT_EQ(FieldOf(status), bad.field) << status;
    for (const std::string& part : bad.said)
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(SparseTablePlanTest, TheNumberOfTablesIsBounded) {
  std::string features;
  for (size_t i = 0; i < kMaxSparseTables; ++i)
    absl::StrAppend(&features, "features { name: 'f", i, "' categorical {} key: RAW } ");
  EXPECT_EQ(TablesOf(features).size(), kMaxSparseTables);
  const absl::Status status =
      PlanSparseTables(FeaturesForTest(features + Categories("more")), UseOfWidth8()).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("\"more\""), HasSubstr("at most 1024")));
}

}  // namespace
}  // namespace sluice
