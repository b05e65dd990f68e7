#include "model/profile/row_cutter.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<RowCutter> CutterOf(const std::string& text) {
  const auto shape = GuessShape("f", text, true);
  EXPECT_TRUE(shape.ok()) << shape.status();
  auto cutter = RowCutter::Create(*shape);
  EXPECT_TRUE(cutter.ok()) << cutter.status();
  return *std::move(cutter);
}

absl::Status Cut(RowCutter* cutter, std::string* line) {
  return cutter->Cut(line->data(), line->size());
}

TEST(RowCutterTest, DelimitedLinesHaveACellForEachColumn) {
  const auto cutter = CutterOf("a,b\n1,x\n2,y\n3,x\n4,y\n5,x\n6,x\n7,x\n8,y\n9,x\n");
  EXPECT_THAT(cutter->columns(), ElementsAre("a", "b"));
  EXPECT_TRUE(cutter->Skips("a,b"));
  EXPECT_TRUE(cutter->Skips(""));
  EXPECT_FALSE(cutter->Skips("a,c"));
  std::string line = "5, \"p,q\"", wrong = "1,2,3";
  ASSERT_TRUE(Cut(cutter.get(), &line).ok());
  EXPECT_THAT(cutter->cells(), ElementsAre("5", "p,q"));
  EXPECT_THAT(std::string(Cut(cutter.get(), &wrong).message()), HasSubstr("3 values"));
}

TEST(RowCutterTest, ColumnsOfLibsvmAppearAsTheyOccur) {
  const auto cutter = CutterOf("1 1:2\n0 1:3\n");
  std::string line = "1:0.5 7:1 3:4 # c", next = "0 3:9", wrong = "1 a:b";
  ASSERT_TRUE(Cut(cutter.get(), &line).ok());
  EXPECT_THAT(cutter->columns(), ElementsAre("label", "7", "3"));
  EXPECT_THAT(cutter->cells(), ElementsAre("1", "1", "4"));
  ASSERT_TRUE(Cut(cutter.get(), &next).ok());
  EXPECT_THAT(cutter->cells(), ElementsAre("0", "", "9"));
  EXPECT_FALSE(Cut(cutter.get(), &wrong).ok());
}

TEST(RowCutterTest, TooManyColumnsAreRefused) {
  const auto cutter = CutterOf("1 1:2\n0 1:3\n");
  std::string line = "1";
  for (size_t i = 0; i < RowCutter::kMostColumns; ++i) line += " " + std::to_string(i) + ":1";
  EXPECT_EQ(Cut(cutter.get(), &line).code(), absl::StatusCode::kResourceExhausted);
}

TEST(RowCutterTest, SlotsKeepTheirValues) {
  const auto cutter = CutterOf("1 1 2 5 6 1 0.5\n1 0 1 7 1 0.25\n");
  std::string line = "1 0 3 8 9 10 1 2.5", few = "1 0 3 8 9", more = "1 0 1 8 1 2 9";
  ASSERT_TRUE(Cut(cutter.get(), &line).ok());
  EXPECT_THAT(cutter->cells(), ElementsAre("0", "8 9 10", "2.5"));
  EXPECT_FALSE(Cut(cutter.get(), &few).ok());
  EXPECT_FALSE(Cut(cutter.get(), &more).ok());
}

}  // namespace
}  // namespace sluice
