#include "model/features/column_examples.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// A column of random values, with what its memory holds.
struct RandomColumn {
  CellColumn cells;
  std::vector<std::string> strings;
  std::vector<std::string_view> text;
  std::vector<int32_t> codes;
  std::vector<int64_t> integers;
  std::vector<uint64_t> unsigned_integers;
  std::vector<double> doubles, weights;
  std::vector<uint8_t> absent, null_lists;
  std::vector<uint32_t> offsets;
};

enum class Shape { kFlat, kList, kWeighted };

class ColumnExamplesTest : public ::testing::Test {
 protected:
  uint32_t Any(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  double AnyDouble() {
    switch (Any(8)) {
      case 0:
        return std::numeric_limits<double>::quiet_NaN();
      case 1:
        return Any(20) == 0 ? 0.5 + Any(9) : -0.0;
      case 2:
        return Any(20) == 0 ? 1e300 : 1e15;
      default:
        return static_cast<double>(Any(9)) - 2;
    }
  }

  // `odd`: one of so many values is one that many features refuse.
  std::unique_ptr<RandomColumn> Column(Cell::Kind kind, size_t rows, Shape shape, bool dictionary,
                                       const std::vector<std::string>& words) {
    auto made = std::make_unique<RandomColumn>();
    RandomColumn& c = *made;
    size_t values = rows;
    if (shape != Shape::kFlat) {
      c.offsets.push_back(0);
      for (size_t r = 0; r < rows; ++r) {
        c.null_lists.push_back(Any(5) == 0);
        c.offsets.push_back(c.offsets.back() + Any(4));
      }
      values = c.offsets.back();
      c.cells.offsets = c.offsets.data();
      c.cells.null_lists = c.null_lists.data();
    }
    for (size_t v = 0; v < values; ++v) {
      c.absent.push_back(Any(6) == 0);
      c.integers.push_back(Any(3) == 0 ? static_cast<int64_t>(random_())
                                       : static_cast<int64_t>(Any(12)) - 3);
      c.unsigned_integers.push_back(Any(3) == 0 ? random_() : Any(12));
      c.doubles.push_back(AnyDouble());
      c.codes.push_back(static_cast<int32_t>(Any(static_cast<uint32_t>(words.size()))));
      c.weights.push_back(Any(60) == 0 ? std::numeric_limits<double>::infinity()
                                       : static_cast<double>(Any(5)) / 2);
    }
    c.strings = words;
    if (!dictionary) {
      c.strings.clear();
      for (const int32_t code : c.codes) c.strings.push_back(words[static_cast<size_t>(code)]);
    } else {
      static uint64_t ids = uint64_t{1} << 60;
      c.cells.codes = c.codes.data();
      c.cells.dictionary_size = words.size();
      c.cells.dictionary_id = ++ids;
      c.cells.dictionary_rows = Any(2) * 100;
    }
    c.text.assign(c.strings.begin(), c.strings.end());
    c.cells.kind = kind;
    c.cells.absent = c.absent.data();
    switch (kind) {
      case Cell::Kind::kText:
        c.cells.text = c.text.data();
        break;
      case Cell::Kind::kUnsigned:
        c.cells.unsigned_integers = c.unsigned_integers.data();
        break;
      case Cell::Kind::kDouble:
        c.cells.doubles = c.doubles.data();
        break;
      default:
        c.cells.integers = c.integers.data();
    }
    if (kind == Cell::Kind::kInstant) {
      for (int64_t& seconds : c.integers) seconds %= 4'000'000'000;
    }
    if (shape == Shape::kWeighted) c.cells.weights = c.weights.data();
    return made;
  }

  std::mt19937_64 random_{7};
};

constexpr char kFeatures[] =
    "features { name: 'n' numeric { log: true default_value: 3 z_score { mean: 1 stddev: 2 } } } "
    "features { name: 'b' numeric { column: 'n' boundaries: [0, 2, 5] keep_numeric: true } } "
    "features { name: 'h' categorical { column: 'n' missing_is_value: true } } "
    "features { name: 'e' numeric { dim: 2 multi_value_delimiter: '|' log: true default_value: 2 } "
    "} "
    "features { name: 'e1' numeric { column: 'e' dim: 2 min_max { min: -1 max: 3 } } } "
    "features { name: 'k' categorical { column: 'c' hash_buckets: 5 } } "
    "features { name: 'v' categorical { column: 'c' vocabulary: ['x', '3', 'yy'] "
    "  missing_is_value: true } } "
    "features { name: 'm' categorical { column: 'l' pooling: MEAN missing_is_value: true } } "
    "features { name: 'lv' categorical { column: 'l' vocabulary: ['x', '1'] } } "
    "features { name: 'p' categorical { column: 's' multi_value_delimiter: '|' "
    "  vocabulary: ['x', 'yy'] } } "
    "features { name: 'pw' categorical { column: 's' multi_value_delimiter: '|' "
    "  weight_delimiter: ':' } } "
    "features { name: 'w' categorical { column: 'lw' weight_delimiter: ':' pooling: MEAN } } "
    "features { name: 'hour' categorical { column: 't' date_part: HOUR } } "
    "features { name: 'year' numeric { column: 't' date_part: YEAR } } "
    "features { name: 'r' key: RAW categorical { column: 'n' } } "
    "features { name: 'x' cross { features: ['b', 'k', 'hour'] hash_buckets: 100 } } "
    "features { name: 'x2' cross { features: ['v', 'h'] } } ";

constexpr char kDenseFeatures[] =
    "features { name: 'n' numeric {} } features { name: 's' numeric {} } "
    "features { name: 'b' numeric { column: 'n' boundaries: [0, 2, 5] dense: true } } "
    "features { name: 'k' categorical { column: 'c' hash_buckets: 5 dense: true } } "
    "features { name: 'v' categorical { column: 'c' vocabulary: ['x', '3', 'yy'] "
    "  missing_is_value: true dense: true } } "
    "features { name: 'l' categorical { vocabulary: ['x', '1'] dense: true } } "
    "features { name: 'day' categorical { column: 't' date_part: DAY_OF_WEEK hash_buckets: 3 "
    "  dense: true } } "
    "features { name: 'x' cross { features: ['b', 'k'] hash_buckets: 9 dense: true } } ";

class RandomColumnsTest : public ColumnExamplesTest,
                          public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Features, RandomColumnsTest, ::testing::Values(kFeatures, kDenseFeatures));

// Random columns of all kinds give what their cells give one by one: examples, counts, bad rows.
TEST_P(RandomColumnsTest, ColumnsMeanWhatTheirCellsMean) {
  JobConfig job = FeaturesForTest(GetParam());
  job.mutable_data()->set_format(DataConfig::PARQUET);
  job.mutable_data()->set_weight_column("u");
  job.mutable_data()->mutable_csv()->add_missing("?");
  job.mutable_data()->mutable_label()->add_positive("1");
  job.mutable_data()->mutable_label()->add_negative("0");
  FeatureUse use = WithKeyWeights();
  use.dense_rows = use.several_tables = true;
  const auto schema = SchemaForTest(job, use);
  ASSERT_NE(schema, nullptr);
  const std::unique_ptr<ColumnAppender> appender = schema->NewColumnAppender();
  ASSERT_NE(appender, nullptr);
  const std::vector<std::string> words = {"x", "yy", "", "?", "3", "-7", "1", "12345678"};
  const std::vector<std::string> lists = {"x|yy", "?", "", "yy:2|x", "z:bad", "|", "x:0.5"};
  const std::vector<std::string> dates = {"2026-11-29 13:14:15", "2026-01-02", "?", "soon"};
  const std::vector<std::string> labels = {"0", "1", "1", "2", ""};
  using Kind = Cell::Kind;
  size_t good = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    const size_t rows = 1 + Any(40);
    const auto pick = [&](std::initializer_list<Kind> kinds) {
      return kinds.begin()[Any(static_cast<uint32_t>(kinds.size()))];
    };
    const auto shape = [&] { return Any(4) == 0 ? Shape::kList : Shape::kFlat; };
    const bool dictionary = Any(2) == 0;
    std::vector<std::unique_ptr<RandomColumn>> made;
    for (const std::string& name : schema->columns()) {
      if (name == "y") {
        made.push_back(Column(Kind::kText, rows, Shape::kFlat, dictionary, labels));
        if (Any(2) == 0) {
          for (int64_t& label : made.back()->integers) label = Any(12) == 0 ? 7 : label & 1;
          made.back()->cells.kind = Kind::kInteger;
          made.back()->cells.integers = made.back()->integers.data();
        }
        for (uint8_t& absent : made.back()->absent) absent = Any(20) == 0;
      } else if (name == "u") {
        made.push_back(Column(Kind::kDouble, rows, Shape::kFlat, false, words));
        for (double& weight : made.back()->doubles) weight = Any(30) == 0 ? -1 : Any(3);
        for (uint8_t& absent : made.back()->absent) absent = Any(40) == 0;
      } else if (name == "n") {
        const Kind kind = pick({Kind::kInteger, Kind::kUnsigned, Kind::kDouble, Kind::kText});
        made.push_back(Column(kind, rows, Shape::kFlat, dictionary, {"3", "", "?", "-7", "12"}));
        for (double& number : made.back()->doubles) {
          if (Any(10) != 0) number = std::isnan(number) ? number : std::trunc(number);
        }
      } else if (name == "e") {
        const std::vector<std::string> vectors = {"[1, 2]", "?", "", "[3]", "[-1, 0.5]"};
        const Kind kind =
            pick({Kind::kInteger, Kind::kUnsigned, Kind::kDouble, Kind::kDouble, Kind::kText});
        const bool list = kind != Kind::kText || Any(2) == 0;
        made.push_back(
            Column(kind, rows, list ? Shape::kList : Shape::kFlat, dictionary,
                   list ? std::vector<std::string>{"3", "", "?", "0.5", "12"} : vectors));
        // Most have the right length.
        for (size_t r = 0; list && r < rows; ++r)
          made.back()->offsets[r + 1] = made.back()->offsets[r] + (Any(15) == 0 ? 1 : 2);
        const size_t values = list ? made.back()->offsets.back() : rows;
        RandomColumn& c = *made.back();
        while (c.absent.size() < values) {
          c.absent.push_back(Any(6) == 0);
          c.integers.push_back(static_cast<int64_t>(Any(12)) - 3);
          c.unsigned_integers.push_back(Any(12));
          c.doubles.push_back(AnyDouble());
          c.codes.push_back(0);
          if (!dictionary) c.strings.push_back("3");
        }
        for (int64_t& number : c.integers) number %= 1000;
        c.text.assign(c.strings.begin(), c.strings.end());
        if (dictionary) c.cells.codes = c.codes.data();
        c.cells.absent = c.absent.data();
        c.cells.integers = c.integers.data();
        c.cells.unsigned_integers = c.unsigned_integers.data();
        c.cells.doubles = c.doubles.data();
        c.cells.text = c.text.data();
      } else if (name == "c") {
        const Kind kind =
            pick({Kind::kInteger, Kind::kUnsigned, Kind::kText, Kind::kText, Kind::kMissing});
        made.push_back(Column(kind, rows, Shape::kFlat, dictionary, words));
      } else if (name == "l") {
        made.push_back(Column(pick({Kind::kInteger, Kind::kDouble, Kind::kText, Kind::kUnsigned}),
                              rows, shape(), dictionary, words));
      } else if (name == "s") {
        made.push_back(Column(pick({Kind::kText, Kind::kText, Kind::kInteger}), rows, shape(),
                              dictionary, lists));
      } else if (name == "lw") {
        made.push_back(
            Column(pick({Kind::kInteger, Kind::kText}), rows, Shape::kWeighted, dictionary, words));
      } else {
        made.push_back(Column(pick({Kind::kInstant, Kind::kInstant, Kind::kText}), rows,
                              Shape::kFlat, dictionary, dates));
      }
    }
    std::vector<CellColumn> columns;
    for (const auto& one : made) columns.push_back(one->cells);

    const bool need_label = Any(4) != 0;
    DataCounts counts, expected_counts;
    Batch batch = EmptyBatch(*schema), expected = EmptyBatch(*schema);
    batch.counts = Any(3) != 0 ? &counts : nullptr;
    expected.counts = batch.counts == nullptr ? nullptr : &expected_counts;
    std::vector<std::string> bad, expected_bad;
    for (size_t r = 0; r < rows; ++r) {
      std::vector<std::vector<Cell>> values(columns.size());
      std::vector<Cell> cells;
      for (size_t c = 0; c < columns.size(); ++c)
        cells.push_back(CellAt(columns[c], r, &values[c]));
      const std::unique_ptr<bool[]> scratch(new bool[cells.size()]);
      ExampleCells example;
      example.typed = cells.data();
      example.scratch = scratch.get();
      const absl::Status status = schema->AppendExample(example, need_label, &expected);
      if (!status.ok()) {
        expected_bad.push_back(std::to_string(r) + " " + std::to_string(expected.n) + " " +
                               std::string(status.message()));
      }
    }
    const absl::Status appended = appender->Append(
        columns.data(), rows, need_label, &batch, [&](size_t row, const absl::Status& why) {
          bad.push_back(std::to_string(row) + " " + std::to_string(batch.n) + " " +
                        std::string(why.message()));
        });
    ASSERT_TRUE(appended.ok()) << appended;
    good += batch.n;
    refused += bad.size();
    ASSERT_THAT(bad, ElementsAreArray(expected_bad)) << round;
    ASSERT_EQ(batch.n, expected.n) << round;
    ASSERT_EQ(batch.label, expected.label) << round;
    ASSERT_EQ(batch.weight, expected.weight) << round;
    ASSERT_EQ(batch.numeric, expected.numeric) << round;
    ASSERT_EQ(batch.key_offsets, expected.key_offsets) << round;
    ASSERT_EQ(batch.keys, expected.keys) << round;
    ASSERT_EQ(batch.key_weights, expected.key_weights) << round;
    ASSERT_EQ(schema->Summarize(counts).SerializeAsString(),
              schema->Summarize(expected_counts).SerializeAsString())
        << round;
  }
  EXPECT_GT(good, 500u);
  EXPECT_GT(refused, 500u);
}

// The ways of most data: every slot has one key, and no row is bad.
TEST_F(ColumnExamplesTest, PlainColumnsFillWholeBlocks) {
  const auto schema = SchemaForTest(
      FeaturesForTest("features { name: 'n' numeric {} } features { name: 'i' categorical {} } "
                      "features { name: 'c' categorical {} } "
                      "features { name: 'r' key: RAW categorical { column: 'i' } }"),
      [] {
        FeatureUse use;
        use.several_tables = true;
        return use;
      }());
  ASSERT_NE(schema, nullptr);
  const auto appender = schema->NewColumnAppender();
  const int64_t ones[] = {1, 0, 1}, ids[] = {7, -8, 9};
  const double numbers[] = {1.5, 2.5, 3.5};
  const std::string_view words[] = {"a", "b"};
  const int32_t codes[] = {1, 0, 1};
  std::vector<CellColumn> columns(schema->columns().size());
  columns[0].kind = columns[3].kind = Cell::Kind::kInteger;
  columns[0].integers = ones;
  columns[2].kind = Cell::Kind::kDouble;
  columns[2].doubles = numbers;
  columns[3].integers = ids;
  columns[4].kind = Cell::Kind::kText;
  columns[4].text = words;
  columns[4].codes = codes;
  columns[4].dictionary_size = 2;
  columns[4].dictionary_id = 1;
  ASSERT_THAT(schema->columns(), ::testing::ElementsAre("y", "", "n", "i", "c"));
  Batch batch = EmptyBatch(*schema);
  ASSERT_TRUE(appender
                  ->Append(columns.data(), 3, true, &batch,
                           [](size_t, const absl::Status&) { FAIL() << "no row is bad"; })
                  .ok());
  const Batch one = ExampleForTest(*schema, {{"n", "1.5"}, {"i", "7"}, {"c", "b"}});
  EXPECT_EQ(KeysOf(batch, 0, 0), KeysOf(one, 0, 0));
  EXPECT_EQ(KeysOf(batch, 2, 1), KeysOf(one, 0, 1));
  EXPECT_EQ(KeysOf(batch, 1, 2), std::vector<uint64_t>{static_cast<uint64_t>(-8)});
  EXPECT_THAT(batch.numeric, ::testing::ElementsAre(1.5F, 2.5F, 3.5F));
}

TEST_F(ColumnExamplesTest, CopiesOfADictionaryAreToldFromOtherDictionaries) {
  const auto schema = SchemaForTest(FeaturesForTest("features { name: 'c' categorical {} }"));
  const auto appender = schema->NewColumnAppender();
  const int64_t ones[] = {1, 1};
  const int32_t codes[] = {1, 0};
  uint64_t id = 0;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"ab", "cd"}, {"ab", "cd"}, {"ab", "ce"}, {"abc", "e"}, {"ab", "ce"}, {"a", "c"}}) {
    const std::vector<std::string_view> texts(words.begin(), words.end());
    std::vector<CellColumn> columns(3);
    columns[0].kind = Cell::Kind::kInteger;
    columns[0].integers = ones;
    columns[2].kind = Cell::Kind::kText;
    columns[2].text = texts.data();
    columns[2].codes = codes;
    columns[2].dictionary_size = columns[2].dictionary_rows = 2;
    columns[2].dictionary_id = ++id;
    Batch batch = EmptyBatch(*schema);
    ASSERT_TRUE(appender
                    ->Append(columns.data(), 2, true, &batch,
                             [](size_t, const absl::Status&) { FAIL() << "no row is bad"; })
                    .ok());
    for (size_t r = 0; r < 2; ++r) {
      const Batch one = ExampleForTest(*schema, {{"c", words[static_cast<size_t>(codes[r])]}});
      EXPECT_EQ(KeysOf(batch, r, 0), KeysOf(one, 0, 0)) << words[static_cast<size_t>(codes[r])];
    }
  }
}

TEST_F(ColumnExamplesTest, WeightsThatNoFeatureUsesAreRefused) {
  const auto schema = SchemaForTest(FeaturesForTest("features { name: 'c' categorical {} }"));
  const Cell one = Cell::Integer(3);
  const double weight = 2;
  const std::vector<Cell> cells = {Cell::Integer(1), Cell(), Cell::List(&one, 1, &weight)};
  const std::unique_ptr<bool[]> scratch(new bool[3]);
  Batch batch = EmptyBatch(*schema);
  EXPECT_THAT(
      std::string(
          schema->AppendExample({nullptr, nullptr, cells.data(), scratch.get()}, true, &batch)
              .message()),
      HasSubstr("weight_delimiter"));
}

}  // namespace
}  // namespace sluice
