#include "common/table/table_layout.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TableConfig Parse(const std::string& text) {
  TableConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

std::shared_ptr<const TableLayout> Make(const std::string& text, uint64_t seed = 1) {
  auto layout = TableLayout::Create(0, Parse(text), seed);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

std::vector<float> Elements(const TableLayout& table, uint64_t first, uint64_t n) {
  std::vector<float> values(n);
  table.InitialElements(first, n, values.data());
  return values;
}

std::vector<float> Row(const TableLayout& table, uint64_t key) {
  std::vector<float> values(table.dim());
  table.InitialRow(key, values.data());
  return values;
}

constexpr char kSparse[] = R"(name: "embedding" kind: SPARSE num_shards: 16
    columns { name: "deep" dim: 8 optimizer { adagrad {} } initializer { uniform { min: -0.05 max: 0.05 } } }
    columns { name: "wide" dim: 1 optimizer { ftrl {} } })";

TEST(TableLayoutTest, BlocksAreCutAtRowBorders) {
  // 1 MiB holds 262,144 elements: 2,621 rows of 100.
  auto table = Make(R"(name: "w" kind: DENSE shape: [10000, 100] optimizer { sgd {} })");
  EXPECT_EQ(table->elements(), 1000000u);
  EXPECT_EQ(table->row_elements(), 100u);
  EXPECT_EQ(table->block_elements(), 262100u);
  ASSERT_EQ(table->num_shards(), 4u);
  uint64_t sum = 0;
  for (uint32_t s = 0; s < 4; ++s) {
    EXPECT_EQ(table->ShardElements(s) % 100, 0u);
    EXPECT_LE(table->ShardElements(s) * sizeof(float), kMaxBlockBytes);
    sum += table->ShardElements(s);
  }
  EXPECT_EQ(sum, table->elements());
  EXPECT_EQ(table->ShardElements(4), 0u);
}

TEST(TableLayoutTest, SmallTensorIsOneBlock) {
  auto table = Make(R"(name: "b" kind: DENSE shape: 50 optimizer { adam {} })");
  EXPECT_EQ(table->num_shards(), 1u);
  EXPECT_EQ(table->ShardElements(0), 50u);
  EXPECT_EQ(table->row_elements(), 50u);
  EXPECT_EQ(table->ShardBytes(0), 50u * 3 * 4);
}

TEST(TableLayoutTest, RowsLargerThanABlockAreCutAnywhereAndCannotBeClipped) {
  const std::string text = R"(name: "w" kind: DENSE shape: [2, 300000] optimizer { sgd {} )";
  EXPECT_EQ(Make(text + "}")->block_elements(), 262144u);
  EXPECT_EQ(Make(text + "}")->num_shards(), 3u);
  auto refused = TableLayout::Create(0, Parse(text + "clip_row_norm: 1 }"), 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("clip_row_norm"));
}

constexpr char kAdamOf16[] = R"(name: "e" kind: SPARSE num_shards: 8
    columns { name: "e" dim: 16 optimizer { adam {} } } )";

TEST(TableLayoutTest, ALimitIsSharedOverTheShards) {
  const auto any = Make(kAdamOf16);
  EXPECT_EQ(any->row_limit(), UINT64_MAX);
  EXPECT_EQ(any->RowLimitOf(3), UINT64_MAX);
  const auto rows = Make(absl::StrCat(kAdamOf16, "max_rows: 19"));
  EXPECT_EQ(rows->row_limit(), 19u);
  EXPECT_EQ(rows->RowLimitOf(2), 3u);
  EXPECT_EQ(rows->RowLimitOf(3), 2u);
}

TEST(TableLayoutTest, AGibIsAsManyRowsAsFitIntoItForSure) {
  const auto gib = Make(absl::StrCat(kAdamOf16, "max_gib: 2"));
  EXPECT_EQ(gib->most_row_bytes(), 236u);  // see server/shards/row_store.h
  EXPECT_EQ(gib->row_limit(), (uint64_t{2} << 30) / 236);
  const auto refused = [](const std::string& more) {
    const auto layout = TableLayout::Create(0, Parse(absl::StrCat(kAdamOf16, more)), 1);
    return std::string(layout.status().message());
  };
  EXPECT_THAT(refused("max_gib: 1e-7"), HasSubstr("max_gib"));
}

TEST(TableLayoutTest, ASketchIsSharedOverTheShards) {
  EXPECT_EQ(Make(absl::StrCat(kAdamOf16, "admit { after: 3 }"))->sketch_bytes(), 8u << 20);
  EXPECT_EQ(Make(absl::StrCat(kAdamOf16, "admit { after: 3 sketch_kib: 1024 }"))->sketch_bytes(),
            128u << 10);
  const auto large = TableLayout::Create(
      0, Parse(absl::StrCat(kAdamOf16, "admit { after: 3 sketch_kib: 131080 }")), 1);
  EXPECT_THAT(std::string(large.status().message()), HasSubstr("lower sketch_kib to 131072"));
}

TEST(TableLayoutTest, AKeyWithoutARowReadsAsAdmissionSays) {
  const std::string random = R"(name: "e" kind: SPARSE num_shards: 8
      columns { name: "e" dim: 2 optimizer { sgd {} } initializer { uniform { min: 1 max: 2 } } } )";
  std::vector<float> values(2);
  const auto read = [&](const std::string& more) {
    Make(random + more)->RowBeforeUpdates(7, values.data());
    return values;
  };
  const std::vector<float> initial = Row(*Make(random), 7);
  EXPECT_EQ(read(""), initial);
  EXPECT_EQ(read("admit { after: 3 }"), initial);
  EXPECT_EQ(read("admit { after: 3 before: ZERO }"), std::vector<float>(2));
}

TEST(TableLayoutTest, ColumnsLieSideBySide) {
  auto table = Make(kSparse);
  EXPECT_EQ(table->dim(), 9u);
  EXPECT_EQ(table->state_floats(), 8u + 2u);
  ASSERT_EQ(table->columns().size(), 2u);
  EXPECT_EQ(table->columns()[1].begin, 8u);
  EXPECT_EQ(table->columns()[1].dim, 1u);
  EXPECT_EQ(table->columns()[1].state_begin, 8u);
  EXPECT_FLOAT_EQ(table->columns()[1].optimizer.learning_rate(), 0.05f);
  EXPECT_EQ(table->num_shards(), 16u);
}

TEST(TableLayoutTest, WireBytesFollowTheType) {
  EXPECT_EQ(Make(kSparse)->wire_bytes(), 4u);
  EXPECT_EQ(Make(std::string(kSparse) + " wire_type: BF16")->wire_bytes(), 2u);
}

TEST(InitialValuesTest, PiecesEqualTheWhole) {
  for (const char* initializer :
       {"uniform { min: -1 max: 1 }", "normal { stddev: 1 }", "constant: 3",
        "he_uniform { fan_in: 10 }", "lecun_uniform { fan_in: 10 }"}) {
    auto table =
        Make(std::string(
                 R"(name: "w" kind: DENSE shape: [30, 10] optimizer { sgd {} } initializer { )") +
             initializer + " }");
    const std::vector<float> whole = Elements(*table, 0, 300);
    for (uint64_t piece : {1u, 7u, 100u}) {
      std::vector<float> joined;
      for (uint64_t first = 0; first < 300; first += piece) {
        const auto part = Elements(*table, first, std::min<uint64_t>(piece, 300 - first));
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, whole) << initializer << " in pieces of " << piece;
    }
  }
}

TEST(InitialValuesTest, DoNotDependOnTheNumberOfShardsOrTheTableId) {
  std::string other = kSparse;
  other.replace(other.find("num_shards: 16"), 14, "num_shards: 61");
  auto a = Make(kSparse);
  auto b = TableLayout::Create(5, Parse(other), 1);
  ASSERT_TRUE(b.ok());
  for (uint64_t key : {0ull, 1ull, 77ull, ~0ull}) EXPECT_EQ(Row(*a, key), Row(**b, key));
}

TEST(InitialValuesTest, DifferBySeedNameKeyAndColumn) {
  auto table = Make(kSparse);
  std::string renamed = kSparse;
  renamed.replace(renamed.find("embedding"), 9, "elsewhere");
  EXPECT_NE(Row(*table, 1), Row(*Make(kSparse, 2), 1));
  EXPECT_NE(Row(*table, 1), Row(*Make(renamed), 1));
  EXPECT_NE(Row(*table, 1), Row(*table, 2));
  const auto row = Row(*table, 1);
  EXPECT_NE(row[0], row[1]);
  EXPECT_EQ(row[8], 0.0f) << "a column without an initializer begins at zero";
}

auto Near(std::vector<float> values) {
  return ::testing::Pointwise(::testing::FloatNear(1e-6f), values);
}

TEST(InitialValuesTest, AreFrozen) {
  auto table = Make(
      R"(name: "w" kind: DENSE shape: [4, 4] optimizer { sgd {} } initializer { uniform { min: 0 max: 1 } })");
  EXPECT_THAT(Elements(*table, 0, 3), Near({0.111278f, 0.43159f, 0.540623f}));
  EXPECT_THAT(Row(*Make(kSparse), 42),
              Near({-0.0110282f, 0.048935f, -0.0370967f, 0.0182356f, -0.00168036f, -0.0294015f,
                    0.0373695f, -0.0400243f, 0}));
}

// The mean and the standard deviation of the initial values of a tensor.
std::pair<double, double> Moments(const std::string& initializer, float* low, float* high) {
  auto table =
      Make(R"(name: "w" kind: DENSE shape: [1000, 100] optimizer { sgd {} } initializer { )" +
           initializer + " }");
  const auto values = Elements(*table, 0, 100000);
  double sum = 0, squares = 0;
  *low = *high = values[0];
  for (float v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
    *low = std::min(*low, v);
    *high = std::max(*high, v);
  }
  const double mean = sum / 1e5;
  return {mean, std::sqrt(squares / 1e5 - mean * mean)};
}

TEST(InitialValuesTest, HaveTheMomentsOfTheirDistribution) {
  float low, high;
  auto [mean, deviation] = Moments("uniform { min: 1 max: 3 }", &low, &high);
  EXPECT_NEAR(mean, 2, 0.01);
  EXPECT_NEAR(deviation, 2 / std::sqrt(12), 0.01);
  EXPECT_GE(low, 1);
  EXPECT_LE(high, 3);
  std::tie(mean, deviation) = Moments("normal { mean: -1 stddev: 0.5 }", &low, &high);
  EXPECT_NEAR(mean, -1, 0.01);
  EXPECT_NEAR(deviation, 0.5, 0.01);
  EXPECT_LT(low, -1 - 3.5 * 0.5);
  EXPECT_GT(high, -1 + 3.5 * 0.5);
  std::tie(mean, deviation) = Moments("he_uniform { fan_in: 24 }", &low, &high);
  EXPECT_NEAR(low, -0.5, 1e-3);
  EXPECT_NEAR(high, 0.5, 1e-3);
  std::tie(mean, deviation) = Moments("lecun_uniform { fan_in: 16 }", &low, &high);
  EXPECT_NEAR(low, -0.25, 1e-3);
  EXPECT_NEAR(high, 0.25, 1e-3);
}

TEST(TableLayoutTest, ImpossibleConfigsAreRefusedByField) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {R"(kind: DENSE shape: 1 optimizer { sgd {} })", "name"},
      {R"(name: "a b" kind: DENSE shape: 1 optimizer { sgd {} })", "name"},
      {R"(name: "t" shape: 1 optimizer { sgd {} })", "kind"},
      {R"(name: "t" kind: DENSE optimizer { sgd {} })", "shape"},
      {R"(name: "t" kind: DENSE shape: [3, 0] optimizer { sgd {} })", "shape"},
      {R"(name: "t" kind: DENSE shape: [4294967296, 4294967296, 2] optimizer { sgd {} })", "shape"},
      {R"(name: "t" kind: DENSE shape: 3)", "optimizer"},
      {R"(name: "t" kind: DENSE shape: 3 num_shards: 2 optimizer { sgd {} })", "num_shards"},
      {R"(name: "t" kind: DENSE shape: 3 optimizer { sgd {} } columns { dim: 1 })", "columns"},
      {R"(name: "t" kind: DENSE shape: 3 optimizer { sgd {} } initializer { he_uniform {} })",
       "fan_in"},
      {R"(name: "t" kind: DENSE shape: 3 optimizer { sgd {} } initializer { uniform { min: 1 } })",
       "uniform"},
      {R"(name: "t" kind: DENSE shape: 3 optimizer { sgd {} } initializer { normal { stddev: -1 } })",
       "stddev"},
      {R"(name: "t" kind: DENSE shape: 3 optimizer { sgd {} } initializer { constant: nan })",
       "constant"},
      {R"(name: "t" kind: SPARSE num_shards: 1)", "columns"},
      {R"(name: "t" kind: SPARSE columns { name: "c" dim: 1 optimizer { sgd {} } })", "num_shards"},
      {R"(name: "t" kind: SPARSE num_shards: 1 columns { name: "c" optimizer { sgd {} } })", "dim"},
      {R"(name: "t" kind: SPARSE num_shards: 1 columns { name: "c" dim: 1 })", "column 'c'"},
      {R"(name: "t" kind: SPARSE num_shards: 1 shape: 3 columns { name: "c" dim: 1 optimizer { sgd {} } })",
       "shape"},
      {R"(name: "t" kind: SPARSE num_shards: 1 columns { name: "c" dim: 1 optimizer { sgd {} } }
          columns { name: "c" dim: 1 optimizer { sgd {} } })",
       "twice"},
      {R"(name: "t" kind: SPARSE num_shards: 1 columns { name: "c" dim: 1 optimizer { sgd {} } }
          update_at: COLLECTIVE)",
       "COLLECTIVE"},
      {R"(name: "t" kind: DENSE shape: 1 optimizer { sgd {} } update_at: WORKER wire_type: BF16)",
       "BF16"},
  };
  for (const auto& [text, field] : cases) {
    const auto layout = TableLayout::Create(0, Parse(text), 1);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(layout.status().message()), HasSubstr(field)) << text;
  }
}

TEST(TableLayoutsTest, IdsAreIndicesAndNamesAreUnique) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  *tables.Add() = Parse(R"(name: "deep/0" kind: DENSE shape: 1 optimizer { sgd {} })");
  *tables.Add() = Parse(kSparse);
  auto layouts = CreateTableLayouts(tables, 1);
  ASSERT_TRUE(layouts.ok()) << layouts.status();
  EXPECT_EQ((*layouts)[1]->id(), 1u);
  EXPECT_TRUE((*layouts)[1]->sparse());
  *tables.Add() = Parse(R"(name: "deep.0" kind: DENSE shape: 1 optimizer { sgd {} })");
  EXPECT_THAT(std::string(CreateTableLayouts(tables, 1).status().message()), HasSubstr("deep/0"));
}

}  // namespace
}  // namespace sluice
