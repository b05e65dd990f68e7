#include "model/data/file_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class HeaderLineTest : public ::testing::Test {
 protected:
  ~HeaderLineTest() override {
    for (const std::string& file : files_) std::remove(file.c_str());
  }
  std::string Write(const std::string& name, const std::string& text) {
    files_.push_back(::testing::TempDir() + "header_line_test_" + name);
    std::ofstream(files_.back()) << text;
    return files_.back();
  }
  // The columns of data whose defaults are filled in.
  std::vector<std::string> Columns(const std::string& text) {
    DataConfig data;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &data)) << text;
    const auto columns = ColumnsOfData(data);
    EXPECT_TRUE(columns.ok()) << columns.status();
    return columns.ok() ? *columns : std::vector<std::string>();
  }

  std::vector<std::string> files_;
};

TEST_F(HeaderLineTest, NamesAreSplitLikeExamplesAndExamplesBeginAfterThem) {
  const std::string file = Write("names",
                                 "\xEF\xBB\xBF"
                                 "a, \"b,c\" ,d\n1,2,3\n");
  const auto header = ReadHeaderLine(Delimited(), file, Env::Real());
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->names, ElementsAre("a", "b,c", "d"));
  EXPECT_EQ(header->end, 15u);
}

TEST_F(HeaderLineTest, FileWithoutLinesNamesNoColumns) {
  const auto header = ReadHeaderLine(Delimited(), Write("empty", ""), Env::Real());
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->names, IsEmpty());
}

TEST_F(HeaderLineTest, ColumnsAreThoseOfTheFirstFileThatHasAHeader) {
  const std::string empty = Write("1", ""), first = Write("2", "x;y\n1;2\n");
  const std::string csv = "format: CSV csv { header: true delimiter: ';' trim: true } ";
  EXPECT_THAT(Columns(csv + "train_files: '" + empty + "' train_files: '" + first + "'"),
              ElementsAre("x", "y"));
  EXPECT_THAT(Columns(csv + "eval_files: '" + first + "'"), ElementsAre("x", "y"));
}

TEST_F(HeaderLineTest, ColumnsOfTheFormatOrTheConfigurationNeedNoFile) {
  EXPECT_THAT(Columns("format: TSV csv { columns: ['p', 'q'] } train_files: '/none'"),
              ElementsAre("p", "q"));
  EXPECT_EQ(Columns("format: CRITEO_TSV").size(), 40u);
  EXPECT_THAT(Columns("format: MULTI_SLOT slots { name: 's' } slots { name: 'd' dim: 2 }"),
              ElementsAre("s", "d.0", "d.1"));
}

TEST_F(HeaderLineTest, MissingFileIsNamed) {
  DataConfig data;
  data.set_format(DataConfig::CSV);
  data.mutable_csv()->set_header(true);
  data.mutable_csv()->set_delimiter(",");
  data.add_train_files("/no/such/file.csv");
  EXPECT_THAT(std::string(ColumnsOfData(data).status().message()), HasSubstr("/no/such/file.csv"));
}

// label, weight, two features, the id_column
const std::vector<std::string> kNeeded = {"y", "w", "age", "", "id"};

std::string Refusal(const std::vector<std::string>& names, bool need_label = true) {
  const auto bound = BindColumns(kNeeded, names, need_label, "data file F", 4);
  EXPECT_EQ(bound.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(bound.status().message());
}

TEST(ColumnBindingTest, ColumnsAreFoundWhereverTheyStand) {
  const auto bound = BindColumns(kNeeded, {"id", "age", "other", "w", "y"}, true, "data file F", 4);
  ASSERT_TRUE(bound.ok());
  EXPECT_THAT(*bound, ElementsAre(4, 3, 1, -1, 0));
}

TEST(ColumnBindingTest, PredictionMayLackOnlyLabelAndWeight) {
  const auto bound = BindColumns(kNeeded, {"id", "age"}, false, "data file F", 4);
  ASSERT_TRUE(bound.ok());
  EXPECT_THAT(*bound, ElementsAre(-1, -1, 1, -1, 0));
  EXPECT_THAT(Refusal({"id"}, false), HasSubstr("\"age\""));
}

TEST(ColumnBindingTest, MissingColumnIsNamedWithItsRole) {
  EXPECT_THAT(Refusal({"w", "age", "id"}), AllOf(HasSubstr("\"y\""), HasSubstr("label")));
  EXPECT_THAT(Refusal({"y", "age", "id"}), AllOf(HasSubstr("\"w\""), HasSubstr("weight")));
  EXPECT_THAT(Refusal({"y", "w", "id"}), AllOf(HasSubstr("\"age\""), HasSubstr("feature")));
  EXPECT_THAT(Refusal({"y", "w", "age"}), AllOf(HasSubstr("\"id\""), HasSubstr("id_column")));
}

TEST(ColumnBindingTest, ClosestNameThatIsNotTakenIsSuggested) {
  EXPECT_THAT(Refusal({"y", "w", "aeg", "id"}), HasSubstr("\"aeg\""));
  EXPECT_THAT(Refusal({"y", "w", "zzzzzz", "id"}), Not(HasSubstr("did you mean")));
}

TEST(ColumnBindingTest, AHeaderOfOneColumnNamesTheDelimiter) {
  EXPECT_THAT(Refusal({"y;w;age;id"}), HasSubstr("data.csv.delimiter: \";\""));
  EXPECT_THAT(Refusal({"y\tw\tage\tid"}), HasSubstr("data.csv.delimiter: \"\\t\""));
  EXPECT_THAT(Refusal({"y"}), Not(HasSubstr("delimiter")));
  EXPECT_THAT(Refusal({"# made by hand"}), HasSubstr("data.csv.comment_prefix"));
}

TEST(ColumnBindingTest, RepeatedColumnIsRefusedAndManyNamesShortened) {
  EXPECT_THAT(Refusal({"y", "w", "age", "age", "id"}), HasSubstr("\"age\""));
  std::vector<std::string> many = {"y", "w", "id"};
  for (int i = 0; i < 500; ++i) many.push_back("column_" + std::string(200, 'x'));
  const std::string message = Refusal(many);
  EXPECT_THAT(message, HasSubstr("503 columns"));
  EXPECT_LT(message.size(), 10000u);
}

}  // namespace
}  // namespace sluice
