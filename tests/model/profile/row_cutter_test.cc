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

TEST(RowCutterTest, ListsAreJoinedAndKnown) {
  const auto json =
      CutterOf("{\"y\": 1, \"x\": 0.5, \"t\": [\"a\"]}\n{\"y\": 0, \"u\": {\"id\": 7}}\n");
  std::string line = R"({"t": ["a", null, 3], "y": true, "u": {"id": 9007199254740993}})";
  std::string broken = R"({"y": 1)";
  ASSERT_TRUE(Cut(json.get(), &line).ok());
  EXPECT_THAT(json->columns(), ElementsAre("y", "x", "t", "u.id"));
  EXPECT_THAT(json->cells(), ElementsAre("1", "",
                                         "a\x1f"
                                         "3",
                                         "9007199254740993"));
  EXPECT_TRUE(json->HasLists(2));
  EXPECT_FALSE(json->HasLists(1));
  EXPECT_FALSE(Cut(json.get(), &broken).ok());

  const auto ffm = CutterOf("1 0:3:1 1:7:0.5\n0 0:4:1 2:9:1\n");
  line = "0 2:5:0.5 0:1:1 2:6:1", broken = "1 2:5";
  ASSERT_TRUE(Cut(ffm.get(), &line).ok());
  EXPECT_THAT(ffm->columns(), ElementsAre("label", "2", "0"));
  EXPECT_THAT(ffm->cells(), ElementsAre("0",
                                        "5\x1f"
                                        "6",
                                        "1"));
  EXPECT_TRUE(ffm->HasLists(2));
  EXPECT_FALSE(ffm->HasLists(0));
  EXPECT_FALSE(Cut(ffm.get(), &broken).ok());
}

TEST(RowCutterTest, SlotsMayComeInAnyOrder) {
  const auto cutter = CutterOf("click:1 user:7 user:9\nclick:0 user:8 price:0.5\n");
  std::string line = "user:3 click:1 other:4 user:5", wrong = "click:1 user";
  ASSERT_TRUE(Cut(cutter.get(), &line).ok());
  EXPECT_THAT(cutter->cells(), ElementsAre("1", "3 5", ""));
  EXPECT_FALSE(Cut(cutter.get(), &wrong).ok());
}

}  // namespace
}  // namespace sluice
