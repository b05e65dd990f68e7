// Parquet files as sources of tables, and what export writes.
#include <utility>

#include "common/arrow/parquet.h"
#include "common/saved_model/saved_model.h"
#include "gmock/gmock.h"
#include "model/table_files/arrow_batch.h"
#include "tests/model/table_files/table_files_for_test.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ParquetSourceTest : public TableFilesTest {
 protected:
  void SetUp() override {
    TableFilesTest::SetUp();
    // A build without Arrow refuses Parquet, and says how to get it.
    if (const absl::Status arrow = OpenArrow(); !arrow.ok()) {
      EXPECT_EQ(arrow.code(), absl::StatusCode::kFailedPrecondition);
      GTEST_SKIP() << "SKIPPED, NOT PASSED: " << arrow.message();
    }
  }

  std::string Write(const std::string& name, std::vector<ArrowColumn> columns, uint64_t rows) {
    auto writer = *ParquetWriter::Create(*env_->StartFile(Path(name)), ArrowSchemaOf(columns),
                                         ParquetWriterOptions());
    EXPECT_TRUE(writer->Write(ArrowRowsOf(std::move(columns), rows)).ok());
    EXPECT_TRUE(writer->Finish().ok());
    return Path(name);
  }

  // Lists whose lengths the offsets give.
  static ArrowColumn AnyLists(const std::string& name, std::vector<int32_t> offsets,
                              std::vector<float> values) {
    ArrowColumn items = ArrowLists("", 1, std::move(values)).children[0];
    auto owner = std::make_shared<std::vector<int32_t>>(std::move(offsets));
    return {name, "+l", owner->size() - 1, {owner->data()}, owner, {std::move(items)}};
  }

  void ExpectRefused(const std::string& file, const std::vector<std::string>& parts) {
    const auto report = Import({file});
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument) << report.status();
    for (const std::string& part : parts)
      EXPECT_THAT(std::string(report.status().message()), HasSubstr(part));
  }
};

TEST_F(ParquetSourceTest, AModelThatIsExportedAndImportedHasItsDigest) {
  // Several batches, with two column groups.
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", Rows(100000))}).ok());
  ExportOptions exported;
  exported.model = options_.output;
  exported.table = "embedding";
  exported.output = Path("rows.parquet");
  ASSERT_TRUE(ExportTable(exported, BuiltInSpecs(), env_).ok());
  options_.output = Path("again");
  const auto report = Import({exported.output});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows, 100000u);
  EXPECT_EQ(report->digest, ReadManifest(exported.model, env_)->model_digest());
}

TEST_F(ParquetSourceTest, ValuesOfAVocabularyComeBack) {
  options_.table = "kinds";
  options_.feature = "kind";
  auto arrays = Rows(2);
  arrays[0] = {"value", "|S1", {2}, "ab"};
  const auto first = Import({WriteNpzFile("rows.npz", arrays)});
  ASSERT_TRUE(first.ok()) << first.status();
  ExportOptions exported;
  exported.model = options_.output;
  exported.feature = "kind";
  exported.output = Path("rows.parquet");
  const auto rows = ExportTable(exported, BuiltInSpecs(), env_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->rows, 2u);
  options_.feature = "";
  options_.output = Path("again");
  const auto report = Import({exported.output});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->digest, first->digest);
}

TEST_F(ParquetSourceTest, ListsOfAnySizeAreReadWhereTheyHaveTheWidth) {
  options_.table = "ids";
  const auto file = Write("lists.parquet",
                          {ArrowNumbers("key", std::vector<uint64_t>{7, 8}),
                           AnyLists("weights", {0, 3, 6}, {1, 2, 3, 4, 5, 6})},
                          2);
  const auto report = Import({file});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->initial_columns, ElementsAre("wide"));
}

TEST_F(ParquetSourceTest, CategoriesAreReadAsTheirTexts) {
  // As pandas writes them: numbers into a dictionary of texts.
  const std::vector<ArrowColumn> columns = {
      ArrowNumbers("value", std::vector<uint32_t>{1, 0}),
      ArrowLists("embedding", 3, {1, 2, 3, 4, 5, 6}),
  };
  const std::vector<ArrowColumn> words = {ArrowTexts("", {0, 4, 9}, "RomeParis")};
  const auto word_schema = ArrowSchemaOf(words);
  const auto word_rows = ArrowRowsOf(words, 2);
  ArrowSchema schema = ArrowSchemaOf(columns).Take();
  schema.children[0]->dictionary = word_schema->children[0];
  ArrowArray rows = ArrowRowsOf(columns, 2).Take();
  rows.children[0]->dictionary = word_rows->children[0];
  const std::string file = Path("categories.parquet");
  auto writer = *ParquetWriter::Create(*env_->StartFile(file), ArrowOwner<ArrowSchema>(schema),
                                       ParquetWriterOptions());
  ASSERT_TRUE(writer->Write(ArrowOwner<ArrowArray>(rows)).ok());
  ASSERT_TRUE(writer->Finish().ok());
  options_.feature = "city";
  const auto report = Import({file});
  ASSERT_TRUE(report.ok()) << report.status();
  options_.output = Path("same");
  const auto same = Import({WriteNpzFile(
      "same.npz", {{"value", "|S5", {2}, std::string("ParisRome\0", 10)},
                   ArrayOf("embedding", "<f4", {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6})})});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(report->digest, same->digest);
}

TEST_F(ParquetSourceTest, WrongColumnsAreRefusedByName) {
  options_.table = "ids";
  options_.column = "embedding";
  ExpectRefused(Write("ragged.parquet",
                      {ArrowNumbers("key", std::vector<uint64_t>{7, 8}),
                       AnyLists("embedding", {0, 3, 5}, {1, 2, 3, 4, 5})},
                      2),
                {"row 1", "key 8", "2 values", "has 3"});
  ExpectRefused(
      Write("wide.parquet",
            {ArrowNumbers("key", std::vector<uint64_t>{7}), ArrowLists("embedding", 2, {1, 2})}, 1),
      {"'embedding'", "2 values", "has 3"});
  ExpectRefused(Write("text.parquet",
                      {ArrowTexts("key", {0, 1}, "7"), ArrowLists("embedding", 3, {1, 2, 3})}, 1),
                {"column 'key'", "integers"});
  ExpectRefused(Write("none.parquet", {ArrowNumbers("key", std::vector<uint64_t>{7})}, 1),
                {"has no column", "embedding"});
  ExpectRefused(WriteText("broken.parquet", "PAR1 and nothing else PAR1"), {"broken.parquet"});
}

}  // namespace
}  // namespace sluice
