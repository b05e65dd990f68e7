// Files that Sluice itself writes; those of pyarrow are in tests/system/parquet_test.py.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/arrow/parquet.h"
#include "gmock/gmock.h"
#include "model/data/data_source.h"
#include "model/data/file_columns.h"
#include "model/data/parquet_file.h"
#include "model/data/row_groups.h"
#include "tests/common/arrow/arrow_columns.h"
#include "tests/model/data/arrow_arrays.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kParquetFeatures[] =
    " features { name: 'n' numeric {} } features { name: 'c' categorical {} } "
    "features { name: 'i' categorical { missing_is_value: true } } "
    "features { name: 'x' cross { features: ['c', 'i'] } }";

class ParquetFormatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status arrow = OpenArrow();
    if (arrow.ok()) return;
    std::fprintf(stderr, "SKIPPED, NOT PASSED: parquet_format_test: %s\n",
                 std::string(arrow.message()).c_str());
    GTEST_SKIP() << arrow;
  }

  static std::string Write(const std::string& path, const TestColumns& columns,
                           uint64_t group_rows = 1 << 20) {
    auto file = Env::Real()->StartFile(path);
    EXPECT_TRUE(file.ok()) << file.status();
    ParquetWriterOptions options;
    options.row_group_rows = group_rows;
    auto writer = ParquetWriter::Create(*std::move(file), TestStructs::Schema(columns), options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Write(TestStructs::Array(columns)).ok());
    EXPECT_TRUE((*writer)->Finish().ok());
    return path;
  }

  // Rows with nulls, of which none is bad; and their text as CSV.
  static TestColumns Rows(size_t rows, std::string* csv = nullptr) {
    std::vector<std::optional<int8_t>> y;
    std::vector<std::optional<double>> n;
    std::vector<std::optional<std::string>> c;
    std::vector<std::optional<int64_t>> i;
    for (size_t r = 0; r < rows; ++r) {
      y.push_back(static_cast<int8_t>(r % 3 == 0));
      n.push_back(r % 7 == 0 ? std::nullopt : std::optional(static_cast<double>(r) / 4));
      c.push_back(r % 11 == 0 ? std::nullopt : std::optional(absl::StrCat("v", r % 23)));
      i.push_back(r % 13 == 0 ? std::nullopt : std::optional(static_cast<int64_t>(r * r) - 50));
      if (csv == nullptr) continue;
      if (r == 0) *csv = "y,n,c,i\n";
      absl::StrAppend(csv, static_cast<int>(*y.back()), ",",
                      n.back() ? absl::StrCat(*n.back()) : "", ",", c.back().value_or(""), ",",
                      i.back() ? absl::StrCat(*i.back()) : "", "\n");
    }
    return {TestColumn::Texts("unused", std::vector<std::optional<std::string>>(rows, "u")),
            TestColumn::Numbers<int64_t>("i", "l", i), TestColumn::Texts("c", c),
            TestColumn::Numbers<double>("n", "g", n), TestColumn::Numbers<int8_t>("y", "c", y)};
  }

  std::unique_ptr<DataSource> Source(const std::string& data, const std::string& features) {
    const JobConfig job = JobForTest("data { " + data + " label { column: 'y' } } " + features);
    schema_ = SchemaForTest(job, WithKeyWeights());
    auto source = DataSource::Create(job.data(), schema_, Env::Real());
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? *std::move(source) : nullptr;
  }
  std::unique_ptr<DataSource> Parquet(const std::string& features = kParquetFeatures) {
    return Source("format: PARQUET", features);
  }

  std::shared_ptr<const FeatureSchema> schema_;
  TempFolder folder_;
};

TEST_F(ParquetFormatTest, ListsAreVectors) {
  using Node = ArrowNode;
  Node table{"+s", ""};
  table.length = 4;
  table.children = {
      Node::Of<int8_t>("c", "y", {1, 0, 1, 0}),
      Node::Lists<int32_t>(
          "+l", "v", {2, 1, std::nullopt, 2},
          Node::Of<float>("f", "item", {0.5F, 1.0F, 2.0F, 8.0F, 9.0F, std::nullopt, 3.0F}))};
  const ArrowStructs structs(table);
  const std::string path = folder_.path() + "/v.parquet";
  auto file = Env::Real()->StartFile(path);
  ASSERT_TRUE(file.ok());
  auto writer = ParquetWriter::Create(*std::move(file), ArrowOwner<ArrowSchema>(structs.schema),
                                      ParquetWriterOptions());
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Write(ArrowOwner<ArrowArray>(structs.array)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto source = Parquet("features { name: 'v' numeric { dim: 2 default_value: 4 } }");
  Batch batch = EmptyBatch(*schema_);
  BadLines bad;
  ASSERT_TRUE(source->ReadPiece(path, 0, UINT64_MAX, true, &batch, &bad).ok());
  EXPECT_THAT(batch.numeric, ElementsAre(0.5, 1, 4, 4, 4, 3));
  EXPECT_EQ(bad.count, 1u);
  EXPECT_THAT(bad.Describe(), AllOf(HasSubstr("1 value"), HasSubstr("dim is 2")));
}

TEST_F(ParquetFormatTest, GivesTheExamplesOfTheSameRowsAsText) {
  std::string text;
  const TestColumns columns = Rows(5000, &text);
  const auto csv = Source("format: CSV csv { header: true }", kParquetFeatures);
  Batch expected = EmptyBatch(*schema_);
  BadLines bad;
  ASSERT_TRUE(
      csv->ReadPiece(folder_.Write("rows.csv", text), 0, UINT64_MAX, true, &expected, &bad).ok());
  ASSERT_EQ(expected.n, 5000u);
  for (const uint64_t group_rows : {7u, 1000u, 5000u}) {
    const std::string path =
        Write(absl::StrCat(folder_.path(), "/", group_rows, ".parquet"), columns, group_rows);
    const auto source = Parquet();
    EXPECT_EQ(*source->TextBytes(path), 5000u);
    // The whole file, and pieces that begin and end anywhere, in order and then not.
    for (const uint64_t piece : {5000u, 1234u}) {
      Batch batch = EmptyBatch(*schema_);
      for (uint64_t at = 0; at < 5000; at += piece)
        ASSERT_TRUE(source->ReadPiece(path, at, at + piece, true, &batch, &bad).ok());
      ASSERT_EQ(batch.n, 5000u);
      EXPECT_EQ(batch.label, expected.label);
      EXPECT_EQ(batch.numeric, expected.numeric);
      EXPECT_EQ(batch.keys, expected.keys);
      EXPECT_EQ(batch.key_offsets, expected.key_offsets);
    }
    Batch batch = EmptyBatch(*schema_);
    for (const uint64_t at : {4000u, 100u, 2000u, 101u})
      ASSERT_TRUE(source->ReadPiece(path, at, at + 1, true, &batch, &bad).ok());
    EXPECT_THAT(batch.numeric, ElementsAre(expected.numeric[4000], expected.numeric[100],
                                           expected.numeric[2000], expected.numeric[101]));
    const auto groups = source->RowGroups(path);
    ASSERT_TRUE(groups.ok());
    EXPECT_EQ(groups->size(), (5000 + group_rows - 1) / group_rows);
    EXPECT_EQ(SumOf(*groups).rows, 5000u);
    EXPECT_GT(SumOf(*groups).bytes, 0u);
    EXPECT_THAT(*source->CountLines(path, 4000, UINT64_MAX, 600), ElementsAre(600, 400));
  }
  EXPECT_EQ(bad.count, 0u);
}

TEST_F(ParquetFormatTest, BadRowsAreNamedByTheirNumbers) {
  const std::string path = Write(
      folder_.path() + "/bad.parquet",
      {TestColumn::Numbers<int32_t>("y", "i", {0, 2, 1, std::nullopt}),
       TestColumn::Texts("n", {"1", "2", "x", "4"}), TestColumn::Texts("c", {"a", "b", "c", "d"}),
       TestColumn::Numbers<double>("i", "g", {1.0, 2.0, 3.0, 0.5})});
  const auto source = Parquet();
  Batch batch = EmptyBatch(*schema_);
  BadLines bad;
  std::vector<uint64_t> positions;
  bad.positions = &positions;
  ASSERT_TRUE(source->ReadPiece(path, 0, UINT64_MAX, true, &batch, &bad).ok());
  EXPECT_EQ(batch.n, 1u);
  EXPECT_EQ(bad.count, 3u);
  EXPECT_THAT(positions, ElementsAre(1, 1, 1));
  EXPECT_THAT(bad.Describe(), AllOf(HasSubstr("bad.parquet:2: label column \"y\": \"2\""),
                                    HasSubstr("bad.parquet:3: feature \"n\""),
                                    HasSubstr("bad.parquet:4: label column \"y\" is missing")));
  std::vector<std::string> problems;
  const auto beginning =
      source->CheckBeginning(path, 1, 1000, [&](uint64_t line, const absl::Status& why) {
        problems.push_back(absl::StrCat(line, " ", why.message()));
      });
  ASSERT_TRUE(beginning.ok()) << beginning.status();
  EXPECT_EQ(beginning->lines, 4u);
  EXPECT_TRUE(beginning->whole);
  ASSERT_EQ(problems.size(), 4u);  // the last row has two
  EXPECT_THAT(problems[3], AllOf(HasSubstr("4 "), HasSubstr("is a fraction")));
  const auto some = source->CheckBeginning(path, 1, 1, [](uint64_t, const absl::Status&) {});
  ASSERT_TRUE(some.ok());
  EXPECT_FALSE(some->whole);
}

TEST_F(ParquetFormatTest, ColumnsThatDifferBetweenFilesAreRefused) {
  const auto source = Parquet(" features { name: 'n' numeric {} }");
  const auto file = [&](const char* name, TestColumn n, bool label = true) {
    TestColumns columns = {std::move(n)};
    if (label) columns.push_back(TestColumn::Numbers<int32_t>("y", "i", {0}));
    return Write(absl::StrCat(folder_.path(), "/", name), columns);
  };
  const std::string a = file("a", TestColumn::Numbers<int64_t>("n", "l", {1}));
  ASSERT_TRUE(source->CheckColumns(a, true).ok());
  // Width and kind of numbers may differ.
  EXPECT_TRUE(
      source->CheckColumns(file("b", TestColumn::Numbers<float>("n", "f", {1})), true).ok());
  const std::string text = file("c", TestColumn::Texts("n", {"1"}));
  EXPECT_THAT(std::string(source->CheckColumns(text, true).message()),
              AllOf(HasSubstr(text), HasSubstr(a), HasSubstr("text"), HasSubstr("numbers")));
  const std::string other = file("d", TestColumn::Numbers<int64_t>("N", "l", {1}));
  EXPECT_THAT(std::string(source->CheckColumns(other, true).message()),
              AllOf(HasSubstr(other), HasSubstr("no column \"n\""), HasSubstr(a)));
  const std::string unlabelled =
      file("e", TestColumn::Numbers<int64_t>("n", "l", {1}), /*label=*/false);
  EXPECT_FALSE(source->CheckColumns(unlabelled, true).ok());
  EXPECT_TRUE(source->CheckColumns(unlabelled, false).ok());
}

TEST_F(ParquetFormatTest, FilesThatAreNoParquetAreRefused) {
  const auto source = Parquet();
  EXPECT_THAT(std::string(source->CheckColumns(folder_.Write("t", "y,n\n1,2\n"), true).message()),
              AllOf(HasSubstr("no Parquet file"), HasSubstr("data.format")));
  EXPECT_THAT(
      std::string(
          source->CheckColumns(folder_.Write("o", std::string("ORC\x01\x02", 5)), true).message()),
      HasSubstr("ORC"));
  EXPECT_EQ(source->CheckColumns(folder_.Write("p", "PAR1 damaged"), true).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(source->CheckColumns(folder_.path() + "/none", true).code(),
            absl::StatusCode::kNotFound);
  // A file of a table whose log says which of its rows are left.
  const std::string table = folder_.path() + "/table";
  ASSERT_TRUE(Env::Real()->MakeDirs(table + "/_delta_log").ok());
  std::ofstream(table + "/_delta_log/0.json") << "{}";
  EXPECT_THAT(
      std::string(source->CheckColumns(Write(table + "/x.parquet", Rows(3)), true).message()),
      HasSubstr("Delta"));
  const std::string lake = folder_.path() + "/lake";
  ASSERT_TRUE(Env::Real()->MakeDirs(lake + "/metadata").ok());
  ASSERT_TRUE(Env::Real()->MakeDirs(lake + "/data").ok());
  std::ofstream(lake + "/metadata/v1.metadata.json") << "{}";
  EXPECT_THAT(
      std::string(source->CheckColumns(Write(lake + "/data/x.parquet", Rows(3)), true).message()),
      AllOf(HasSubstr("Iceberg"), HasSubstr(lake + " is")));
}

TEST_F(ParquetFormatTest, FoldersGiveColumnsThatTheFileLacks) {
  const std::string folder = folder_.path() + "/day=2026-11-29/i=5";
  ASSERT_TRUE(Env::Real()->MakeDirs(folder).ok());
  const std::string path = Write(folder + "/x.parquet", Rows(3));
  const auto source =
      Source("format: PARQUET train_files: '" + folder_.path() + "/*/*/x.parquet'",
             "features { name: 'd' categorical { column: 'day' date_part: DAY_OF_MONTH } } "
             "features { name: 'i' numeric {} }");
  Batch batch = EmptyBatch(*schema_);
  BadLines bad;
  ASSERT_TRUE(source->ReadPiece(path, 0, UINT64_MAX, true, &batch, &bad).ok());
  const Batch one = ExampleForTest(*schema_, {{"day", "2026-11-29"}, {"i", "-49"}});
  EXPECT_EQ(KeysOf(batch, 2, 0), KeysOf(one, 0, 0));
  // The file's own column wins.
  EXPECT_THAT(batch.numeric, ElementsAre(0, -49, -46));
  DataConfig data;
  data.set_format(DataConfig::PARQUET);
  data.add_train_files(folder_.path() + "/*/*/x.parquet");
  EXPECT_THAT(*ColumnsOfData(data), ElementsAre("unused", "i", "c", "n", "y", "day"));
}

TEST_F(ParquetFormatTest, StreamsGiveIdsAndPlacesOfBadRows) {
  const std::string path =
      Write(folder_.path() + "/x.parquet",
            {TestColumn::Texts("n", {"1", "x", "3"}), TestColumn::Texts("c", {"a", "b", "c"}),
             TestColumn::Numbers<int64_t>("i", "l", {7, 8, 9})},
            2);
  const auto source = Parquet();
  auto stream = source->OpenStream({path, "i"});
  ASSERT_TRUE(stream.ok()) << stream.status();
  const auto parser = (*stream)->NewParser();
  ExampleStream::Text text;
  ExampleStream::Piece piece;
  BadLines bad;
  std::vector<std::string> ids;
  std::vector<float> numbers;
  while (*(*stream)->Read(1, &text)) {
    ASSERT_TRUE(parser->Parse(&text, &piece, &bad).ok());
    ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
    numbers.insert(numbers.end(), piece.examples.numeric.begin(), piece.examples.numeric.end());
  }
  EXPECT_THAT(ids, ElementsAre("7", "8", "9"));
  EXPECT_THAT(numbers, ElementsAre(1, 3));
  EXPECT_THAT(bad.Describe(), HasSubstr("x.parquet:2"));
  EXPECT_THAT(std::string(source->OpenStream({"", ""}).status().message()),
              HasSubstr("standard input"));
  EXPECT_THAT(std::string(source->OpenStream({path, "nothing"}).status().message()),
              HasSubstr("id_column"));
}

// Pieces are planned from the rows of the footer, before a row is read.
TEST_F(ParquetFormatTest, AFooterThatTellsOfTooManyRowsIsRefused) {
  const std::string path = Write(folder_.path() + "/lie.parquet", Rows(5000));
  std::string bytes = *Env::Real()->ReadRange(path, 0, 1 << 20);
  uint32_t footer = 0;
  std::memcpy(&footer, &bytes[bytes.size() - 8], 4);
  const size_t begin = bytes.size() - 8 - footer;
  // Fields of 64 bits, 5000 and 2^40, doubled, in groups of 7 bits.
  const std::string rows = "\x16\x90\x4e", more = "\x16\x80\x80\x80\x80\x80\x40";
  const std::string lie = absl::StrReplaceAll(bytes.substr(begin, footer), {{rows, more}});
  ASSERT_GT(lie.size(), footer);
  footer = static_cast<uint32_t>(lie.size());
  bytes = absl::StrCat(bytes.substr(0, begin), lie,
                       std::string(reinterpret_cast<const char*>(&footer), 4), "PAR1");
  const auto source = Parquet();
  const auto groups = source->RowGroups(folder_.Write("lie.parquet", bytes));
  EXPECT_EQ(groups.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(groups.status().message()),
              AllOf(HasSubstr("lie.parquet"), HasSubstr("rows")));
}

TEST_F(ParquetFormatTest, RowsOnTheWayToAnotherAreNotAllKept) {
  ParquetFile::Options options;
  options.columns = {"y", "", "n"};
  options.most_batch_rows = 5000;
  options.most_kept_bytes = 512 << 10;
  const auto file = ParquetFile::Open(Write(folder_.path() + "/long.parquet", Rows(100'000)),
                                      Env::Real(), options);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto rows = (*file)->RowsAt(99'999, 100'000);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)->end, 100'000u);
  EXPECT_GE((*file)->kept_bytes(), 256u << 10);
  EXPECT_LE((*file)->kept_bytes(), 512u << 10);
}

}  // namespace
}  // namespace sluice
