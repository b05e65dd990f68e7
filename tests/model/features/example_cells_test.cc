#include "model/features/example_cells.h"

#include <cmath>
#include <limits>
#include <memory>

#include "gmock/gmock.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const Cell& cell) {
  NumberText memory;
  return std::string(TextOf(cell, &memory));
}

TEST(ExampleCellsTest, NumbersHaveTheShortestTextThatGivesThemBack) {
  EXPECT_EQ(Text(Cell::Integer(std::numeric_limits<int64_t>::min())), "-9223372036854775808");
  EXPECT_EQ(Text(Cell::Unsigned(UINT64_MAX)), "18446744073709551615");
  EXPECT_EQ(Text(Cell::Double(0.1)), "0.1");
  EXPECT_EQ(Text(Cell::Bool(true)), "1");
  EXPECT_EQ(Text(Cell::Text("a")), "a");
  EXPECT_EQ(Text(Cell()), "");
}

// Appends one example of typed cells, label first.
absl::Status AppendTyped(const FeatureSchema& schema, const std::vector<Cell>& cells,
                         Batch* batch) {
  const std::unique_ptr<bool[]> scratch(new bool[cells.size()]);
  return schema.AppendExample(ExampleCells{nullptr, nullptr, cells.data(), scratch.get()},
                              /*need_label=*/true, batch);
}

constexpr char kAll[] =
    "features { name: 'n' numeric { log: true default_value: 7 } } "
    "features { name: 'c' categorical { missing_is_value: true } } "
    "features { name: 'b' numeric { column: 'n' boundaries: [1, 5] } } "
    "features { name: 'v' categorical { column: 'c' vocabulary: ['12', 'x'] } } "
    "features { name: 'bv' cross { features: ['b', 'v'] } }";

// Typed cells and their texts give the same example.
TEST(ExampleCellsTest, TypedCellsMeanWhatTheirTextMeans) {
  JobConfig job = FeaturesForTest(kAll);
  job.mutable_data()->mutable_csv()->add_missing("?");
  const auto schema = SchemaForTest(job);
  ASSERT_THAT(schema->columns(), ElementsAre("y", "", "n", "c"));
  struct Case {
    Cell label, n, c;
    std::string label_text, n_text, c_text;  // "-": missing
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Case cases[] = {
      {Cell::Bool(true), Cell::Integer(3), Cell::Integer(12), "1", "3", "12"},
      {Cell::Integer(0), Cell::Double(0.3), Cell::Double(12), "0", "0.3", "12"},
      {Cell::Double(1), Cell::Unsigned(UINT64_MAX), Cell::Unsigned(UINT64_MAX), "1",
       "18446744073709551615", "18446744073709551615"},
      {Cell::Text("1"), Cell::Text("2.5"), Cell::Text("x"), "1", "2.5", "x"},
      {Cell::Integer(1), Cell(), Cell(), "1", "-", "-"},
      {Cell::Integer(1), Cell::Double(nan), Cell::Text(""), "1", "-", "-"},
      {Cell::Integer(1), Cell::Text("?"), Cell::Double(nan), "1", "-", "-"},
      {Cell::Integer(1), Cell::Bool(false), Cell::Bool(true), "1", "0", "1"},
      {Cell::Integer(1), Cell::Integer(-1), Cell::Integer(-12), "1", "-1", "-12"},
  };
  for (const Case& one : cases) {
    Batch typed = EmptyBatch(*schema), text = EmptyBatch(*schema);
    DataCounts typed_counts, text_counts;
    typed.counts = &typed_counts;
    text.counts = &text_counts;
    const absl::Status added = AppendTyped(*schema, {one.label, Cell(), one.n, one.c}, &typed);
    ASSERT_TRUE(added.ok()) << added;
    std::map<std::string, std::string> cells = {{"y", one.label_text}};
    if (one.n_text != "-") cells["n"] = one.n_text;
    if (one.c_text != "-") cells["c"] = one.c_text;
    ASSERT_TRUE(AppendForTest(*schema, cells, &text).ok());
    EXPECT_EQ(typed.label, text.label);
    EXPECT_EQ(typed.weight, text.weight);
    EXPECT_EQ(typed.numeric, text.numeric) << one.n_text;
    EXPECT_EQ(typed.keys, text.keys) << one.c_text;
    EXPECT_EQ(typed.key_offsets, text.key_offsets);
    EXPECT_EQ(schema->Summarize(typed_counts).SerializeAsString(),
              schema->Summarize(text_counts).SerializeAsString());
  }
}

TEST(ExampleCellsTest, AFractionIsNoCategory) {
  const auto schema = SchemaForTest(FeaturesForTest("features { name: 'c' categorical {} }"));
  Batch batch = EmptyBatch(*schema);
  for (const double value :
       {0.5, 9007199254740992.0, -9007199254740992.0, std::numeric_limits<double>::infinity()}) {
    const absl::Status refused =
        AppendTyped(*schema, {Cell::Integer(1), Cell(), Cell::Double(value)}, &batch);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << value;
    EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("\"c\""), HasSubstr("fraction")));
  }
  EXPECT_EQ(batch.n, 0u);
  EXPECT_THAT(batch.keys, IsEmpty());
  EXPECT_TRUE(
      AppendTyped(*schema, {Cell::Integer(1), Cell(), Cell::Double(9007199254740991)}, &batch)
          .ok());
  EXPECT_EQ(batch.keys, ExampleForTest(*schema, {{"c", "9007199254740991"}}).keys);
}

TEST(ExampleCellsTest, AListHasSeveralValuesAndMayHaveWeights) {
  JobConfig job = FeaturesForTest(
      "features { name: 'c' categorical { multi_value_delimiter: '|' weight_delimiter: ':' } }");
  job.mutable_data()->mutable_csv()->add_missing("?");
  const auto schema = SchemaForTest(job, WithKeyWeights());
  const Batch text = ExampleForTest(*schema, {{"c", "7:2|b"}});
  const Cell values[] = {Cell::Integer(7), Cell(), Cell::Text("?"), Cell::Text("b"),
                         Cell::Double(std::nan(""))};
  const double weights[] = {2, 5, 5, 1, 5};
  Batch batch = EmptyBatch(*schema);
  ASSERT_TRUE(
      AppendTyped(*schema, {Cell::Integer(1), Cell(), Cell::List(values, 5, weights)}, &batch)
          .ok());
  EXPECT_EQ(batch.keys, text.keys);
  EXPECT_EQ(batch.key_weights, text.key_weights);
  // Without weights of their own, texts are read as in a cell.
  const Cell written[] = {Cell::Text("7:2"), Cell::Text("b")};
  batch = EmptyBatch(*schema);
  ASSERT_TRUE(
      AppendTyped(*schema, {Cell::Integer(1), Cell(), Cell::List(written, 2)}, &batch).ok());
  EXPECT_EQ(batch.keys, text.keys);
  EXPECT_EQ(batch.key_weights, text.key_weights);
  const double bad[] = {std::numeric_limits<double>::infinity()};
  EXPECT_FALSE(
      AppendTyped(*schema, {Cell::Integer(1), Cell(), Cell::List(values, 1, bad)}, &batch).ok());
  EXPECT_EQ(batch.n, 1u);
}

TEST(ExampleCellsTest, OnlyAFeatureOfSeveralValuesTakesAList) {
  const auto schema = SchemaForTest(FeaturesForTest(kAll));
  const Cell values[] = {Cell::Integer(1), Cell::Integer(2)};
  const Cell list = Cell::List(values, 2);
  Batch batch = EmptyBatch(*schema);
  const std::vector<Cell> cells[] = {{Cell::Integer(1), Cell(), list, Cell::Integer(1)},
                                     {Cell::Integer(1), Cell(), Cell::Integer(1), list},
                                     {list, Cell(), Cell::Integer(1), Cell::Integer(1)}};
  for (const std::vector<Cell>& one : cells) {
    EXPECT_EQ(AppendTyped(*schema, one, &batch).code(), absl::StatusCode::kInvalidArgument);
    const std::unique_ptr<bool[]> scratch(new bool[one.size()]);
    EXPECT_THAT(schema->FindProblems(ExampleCells{nullptr, nullptr, one.data(), scratch.get()}),
                ::testing::Not(IsEmpty()));
  }
  EXPECT_EQ(batch.n, 0u);
}

TEST(ExampleCellsTest, RawKeysAndDatesAreReadFromIntegers) {
  const auto schema = SchemaForTest(FeaturesForTest(
      "features { name: 'k' key: RAW categorical {} } "
      "features { name: 'hour' numeric { column: 't' date_part: HOUR date_format: 'EPOCH_S' } }"));
  Batch batch = EmptyBatch(*schema);
  ASSERT_TRUE(AppendTyped(*schema,
                          {Cell::Integer(1), Cell(), Cell::Integer(-1), Cell::Integer(7200)},
                          &batch)
                  .ok());
  EXPECT_THAT(batch.keys, ElementsAre(UINT64_MAX));
  EXPECT_THAT(batch.numeric, ElementsAre(2));
}

}  // namespace
}  // namespace sluice
