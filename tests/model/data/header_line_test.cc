#include "model/data/header_line.h"

#include <cstdio>
#include <fstream>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  const auto header = ReadHeaderLine(Delimited(), file);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->names, ElementsAre("a", "b,c", "d"));
  EXPECT_EQ(header->end, 15u);
}

TEST_F(HeaderLineTest, FileWithoutLinesNamesNoColumns) {
  const auto header = ReadHeaderLine(Delimited(), Write("empty", ""));
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

}  // namespace
}  // namespace sluice
