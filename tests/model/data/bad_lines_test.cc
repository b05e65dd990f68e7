#include "model/data/bad_lines.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(why); }

TEST(BadLinesTest, LinesOfOneKindDifferInCellsAndNumbersAlone) {
  const std::string kind = KindOfBadLine("feature \"age\", column \"a\": \"x\" is not a number");
  EXPECT_EQ(KindOfBadLine("feature \"age\", column \"a\": \"yy\" is not a number"), kind);
  EXPECT_NE(KindOfBadLine("feature \"age\", column \"b\": \"x\" is not a number"), kind);
  EXPECT_NE(KindOfBadLine("feature \"sex\", column \"a\": \"x\" is not a number"), kind);
  EXPECT_NE(KindOfBadLine("feature \"age\", column \"a\": \"x\" is too large"), kind);
  EXPECT_EQ(KindOfBadLine("the line has 3 values, but the header names 12 columns"),
            KindOfBadLine("the line has 14 values, but the header names 12 columns"));
  EXPECT_EQ(KindOfBadLine("\"a\" is not index:value"), KindOfBadLine("\"b:\" is not index:value"));
  EXPECT_EQ(KindOfBadLine("ends in \"a quote"), KindOfBadLine("ends in \"another"));
  EXPECT_EQ(KindOfBadLine(""), "");
}

TEST(BadLinesTest, TheFirstLineOfEachKindIsKept) {
  BadLines bad;
  for (int i = 1; i <= 1000; ++i)
    bad.Add("f:" + std::to_string(i), Bad("\"v" + std::to_string(i) + "\" is no label"));
  EXPECT_FALSE(bad.Names(Bad("\"w\" is no label")));
  EXPECT_TRUE(bad.Names(Bad("\"w\" is no number")));
  bad.Add("f:1001", Bad("\"w\" is no number"));
  EXPECT_EQ(bad.count, 1001u);
  EXPECT_THAT(bad.first, ElementsAre("f:1: \"v1\" is no label", "f:1001: \"w\" is no number"));
  BadLines all;
  all.Add("e:7", Bad("\"z\" is no label"));
  all.Merge(bad);
  EXPECT_EQ(all.count, 1002u);
  EXPECT_THAT(all.first, ElementsAre("e:7: \"z\" is no label", "f:1001: \"w\" is no number"));
  EXPECT_THAT(all.Describe(), AllOf(HasSubstr("1002 malformed lines"), HasSubstr("e:7: ")));
  for (char c = 'a'; c < 'z'; ++c) all.Add("g:1", Bad(std::string("kind ") + c));
  EXPECT_EQ(all.first.size(), BadLines::kNamed);
}

TEST(BadLinesTest, WhenMostLinesAreBadTheJobFileIsToBlame) {
  BadLines bad;
  bad.Add("f:1", Bad("\"v\" is no label"));
  const std::string some(TooManyBadLines("the data", 0, bad, false).message());
  const std::string most(TooManyBadLines("the data", 0, bad, true).message());
  for (const std::string& text : {some, most})
    EXPECT_THAT(text, AllOf(HasSubstr("data.max_bad_lines = 0"), HasSubstr("f:1: ")));
  EXPECT_THAT(some, HasSubstr("fix the data"));
  EXPECT_THAT(most, AllOf(HasSubstr("do not fit the job file"), Not(HasSubstr("raise the limit"))));
}

}  // namespace
}  // namespace sluice
