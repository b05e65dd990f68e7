#include "model/table_files/table_export.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "model/features/feature_compiler.h"
#include "tests/model/table_files/table_files_for_test.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class TableExportTest : public TableFilesTest {
 protected:
  void SetUp() override {
    TableFilesTest::SetUp();
    exported_.model = options_.output;
    exported_.table = "embedding";
    exported_.output = Path("out.npz");
  }
  absl::StatusOr<ExportReport> Export() { return ExportTable(exported_, BuiltInSpecs(), env_); }

  ExportOptions exported_;
};

TEST_F(TableExportTest, ValuesOfTheVocabularyReplaceTheKeys) {
  options_.feature = "city";
  auto arrays = Rows(3);
  arrays[0] = {"value",
               "|S6",
               {3},
               std::string("Rome\0\0", 6) + "Malm\xC3\xB6" + std::string("Oslo\0\0", 6)};
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", arrays)}).ok());
  exported_.feature = "city";
  EXPECT_THAT(std::string(Export().status().message()), HasSubstr("--vocabulary=FILE"));
  exported_.vocabulary = WriteText("cities.txt", "Oslo\n\nNowhere\nMalm\xC3\xB6\n");
  const auto report = Export();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows, 2u);
  EXPECT_EQ(report->unnamed_rows, 1u);
  EXPECT_EQ(report->unused_values, 1u);
  EXPECT_EQ(ReadArray(exported_.output, "key"), "");
  const std::string values = ReadArray(exported_.output, "value");
  EXPECT_TRUE(absl::StrContains(values, "'<U7'")) << values;
  exported_.vocabulary = WriteText("long.txt", "Oslo\n" + std::string(5000, 'x') + "\n");
  EXPECT_THAT(std::string(Export().status().message()), HasSubstr("line 2"));
  // Values and features can be imported again.
  options_.feature = "";
  options_.like = options_.output;
  options_.output = Path("again");
  const auto again = Import({exported_.output});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->rows, 2u);
  EXPECT_EQ(again->unmatched, 0u);
}

TEST_F(TableExportTest, AModelHasNoState) {
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", Rows(3))}).ok());
  exported_.state = true;
  EXPECT_EQ(Export().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(env_->Exists(exported_.output));
}

TEST_F(TableExportTest, ADamagedModelLeavesNoFile) {
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", Rows(3000))}).ok());
  const std::vector<std::string> names = *env_->List(options_.output);
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, "embedding-3")) continue;
    std::string bytes = *env_->ReadFile(options_.output + "/" + name);
    bytes[bytes.size() / 2] ^= 1;
    ASSERT_TRUE(env_->WriteFile(options_.output + "/" + name, {bytes}).ok());
  }
  EXPECT_EQ(Export().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(env_->Exists(exported_.output));
}

TEST_F(TableExportTest, AnEndingTellsTheFormat) {
  ASSERT_TRUE(Import({WriteNpzFile("rows.npz", Rows(3))}).ok());
  exported_.output = Path("out.csv");
  EXPECT_THAT(std::string(Export().status().message()), HasSubstr(".parquet or .npz"));
}

}  // namespace
}  // namespace sluice
