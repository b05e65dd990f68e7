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

TEST(SparseTablePlanTest, TableOfIsByFeature) {
  const auto plan = PlanSparseTables(
      FeaturesForTest("features { name: 'n' numeric {} }" + Categories("a") +
                      "features { name: 'r' categorical {} key: RAW }" + Categories("b")),
      UseOfWidth8());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->table_of, ElementsAre(0, 0, 1, 0));
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
