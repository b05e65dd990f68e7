#include "model/profile/text_shape.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TextShape ShapeOf(const std::string& text) {
  const auto shape = GuessShape("f", text, true);
  EXPECT_TRUE(shape.ok()) << shape.status();
  return shape.ok() ? *shape : TextShape();
}

std::string ErrorOf(const std::string& text) {
  const auto shape = GuessShape("f", text, true);
  EXPECT_EQ(shape.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(shape.status().message());
}

// Lines of a text with `d` between its cells.
std::string Rows(const std::string& d, const std::string& header = "") {
  std::string text = header;
  for (int i = 0; i < 50; ++i)
    absl::StrAppend(&text, i % 2, d, "city", i % 3, d, i * 1.5, d, i % 7, "\n");
  return text;
}

TEST(TextShapeTest, DelimitersAreRecognized) {
  for (const std::string d : {",", "\t", ";", "|", "::", "\x01"}) {
    const TextShape shape = ShapeOf(Rows(d));
    EXPECT_EQ(shape.data.format(), d == "\t" ? DataConfig::TSV : DataConfig::CSV);
    EXPECT_EQ(shape.data.csv().delimiter(), d == "," || d == "\t" ? "" : d);
    EXPECT_FALSE(shape.data.csv().header());
    EXPECT_THAT(shape.columns, ElementsAre("c1", "c2", "c3", "c4"));
  }
  const TextShape blanks = ShapeOf("1   a  2\n0  bb  33\n1 c    4\n");
  EXPECT_EQ(blanks.data.csv().delimiter(), " ");
  EXPECT_TRUE(blanks.data.csv().merge_delimiters());
}

TEST(TextShapeTest, AHeaderNamesTheColumns) {
  const TextShape shape = ShapeOf(Rows(",", "label,city,x,n\n"));
  EXPECT_TRUE(shape.data.csv().header());
  EXPECT_EQ(shape.data.csv().columns_size(), 0);
  EXPECT_THAT(shape.columns, ElementsAre("label", "city", "x", "n"));
  // Text alone: the names do not occur again.
  std::string words = "color,size\n";
  for (int i = 0; i < 60; ++i)
    absl::StrAppend(&words, i % 2 ? "red" : "blue", ",", i % 3 ? "L" : "M", "\n");
  EXPECT_TRUE(ShapeOf(words).data.csv().header());
  EXPECT_FALSE(ShapeOf(words.substr(words.find('\n') + 1)).data.csv().header());
}

TEST(TextShapeTest, QuotesEscapesCommentsAndMarksAreRecognized) {
  std::string quoted = "label,name,n\n", single, bare, escaped, comma;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&quoted, i % 2, ",\"a, \"\"b\"\"", i % 3, "\",", i, "\n");
    absl::StrAppend(&single, i % 2, ",'a, b", i % 3, "',", i, "\n");
    absl::StrAppend(&bare, i % 2, "\t\"a", i % 3, " \t", i, "\n");
    absl::StrAppend(&escaped, i % 2, ",a\\, b", i % 3, ",", i, "\n");
    absl::StrAppend(&comma, i % 2, ";0,", i % 4 + 1, ";", i, ",25\n");
  }
  EXPECT_EQ(ShapeOf(quoted).columns.size(), 3u);
  EXPECT_FALSE(ShapeOf(quoted).data.csv().has_quote());
  EXPECT_EQ(ShapeOf(single).data.csv().quote(), "'");
  EXPECT_TRUE(ShapeOf(bare).data.csv().has_quote());
  EXPECT_EQ(ShapeOf(bare).data.csv().quote(), "");
  EXPECT_EQ(ShapeOf(escaped).data.csv().escape(), "\\");
  EXPECT_EQ(ShapeOf(comma).data.csv().delimiter(), ";");
  EXPECT_EQ(ShapeOf(comma).data.csv().decimal_mark(), ",");
  EXPECT_EQ(ShapeOf("|1x3 Cross validator\n" + Rows(",")).data.csv().comment_prefix(), "|");
}

TEST(TextShapeTest, OtherFormatsAreRecognized) {
  std::string criteo, libsvm, slots;
  for (int i = 0; i < 30; ++i) {
    absl::StrAppend(&criteo, i % 2);
    for (int c = 1; c < 40; ++c)
      absl::StrAppend(&criteo, "\t", c <= 13 ? absl::StrCat(i) : "68fd1e64");
    absl::StrAppend(&criteo, "\n");
    absl::StrAppend(&libsvm, i % 2 ? "+1" : "-1", " 1:0.5 3:", i, "\n");
    absl::StrAppend(&slots, "1 ", i % 2, " 2 ", i, " 7 1 0.5\n");
  }
  EXPECT_EQ(ShapeOf(criteo).data.format(), DataConfig::CRITEO_TSV);
  EXPECT_EQ(ShapeOf(criteo).columns.size(), 40u);
  EXPECT_EQ(ShapeOf(libsvm).data.format(), DataConfig::LIBSVM);
  const TextShape multi = ShapeOf(slots);
  ASSERT_EQ(multi.data.format(), DataConfig::MULTI_SLOT);
  ASSERT_EQ(multi.data.slots_size(), 3);
  EXPECT_EQ(multi.data.slots(0).dim(), 1u);
  EXPECT_EQ(multi.data.slots(1).dim(), 0u);
  EXPECT_EQ(multi.data.slots(2).type(), Slot::FLOAT);
}

TEST(TextShapeTest, LinesThatNameTheirColumnsAreRecognized) {
  EXPECT_EQ(ShapeOf("1 0:3:1 1:7:0.5\n0 0:4:1 2:9:1\n").data.format(), DataConfig::LIBFFM);
  const TextShape slots = ShapeOf("click:1 user:7 user:9\nclick:0 6:8 price:0.5\n");
  ASSERT_EQ(slots.data.format(), DataConfig::SLOT_VALUE);
  EXPECT_THAT(slots.columns, ElementsAre("click", "user", "6", "price"));
  EXPECT_EQ(slots.data.slots(0).dim(), 1u);
  EXPECT_EQ(slots.data.slots(1).dim(), 0u);
  EXPECT_EQ(slots.data.slots(3).type(), Slot::FLOAT);
  const TextShape json =
      ShapeOf("{\"y\": 1, \"user\": {\"id\": 5}}\n{\"y\": 0, \"tags\": [\"a\"]}\n");
  EXPECT_EQ(json.data.format(), DataConfig::JSON_LINES);
  EXPECT_THAT(json.columns, ElementsAre("y", "user.id", "tags"));
}

TEST(TextShapeTest, ManyIndicesOfOneAreValuesAndNoColumns) {
  std::string one_hot, numbers;
  for (int i = 0; i < 200; ++i) {
    absl::StrAppend(&one_hot, i % 2, " ", i + 1, ":1 ", i + 1000, ":1\n");
    absl::StrAppend(&numbers, i % 2, " ", i + 1, ":0.5 ", i + 1000, ":2\n");
  }
  EXPECT_THAT(ShapeOf(one_hot).columns, ElementsAre("label", "indices"));
  EXPECT_THAT(ShapeOf(numbers).columns, ElementsAre("label"));
}

TEST(TextShapeTest, ANameMayAlsoBeAValue) {
  std::string text = "label,x,c\n", plain = "NA,abc,c\n";
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&text, i % 2, ",", i % 7, ",", std::string(1, "abc"[i % 3]), "\n");
    absl::StrAppend(&plain, i % 9 ? absl::StrCat(i) : "NA", ",", i % 2 ? "abc" : "d", ",c\n");
  }
  EXPECT_TRUE(ShapeOf(text).data.csv().header());
  EXPECT_FALSE(ShapeOf(plain).data.csv().header());
}

TEST(TextShapeTest, WhatIsNoTableIsRefused) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf("\n\n"), HasSubstr("no lines"));
  EXPECT_THAT(ErrorOf("a\nb\nc\n"), HasSubstr("one column"));
  EXPECT_THAT(ErrorOf("{\n \"y\": 1,\n \"x\": 2\n}\n"), HasSubstr("jq"));
  EXPECT_THAT(ErrorOf(std::string("a,b\n1,\0\n", 8)), HasSubstr("no text"));
}

}  // namespace
}  // namespace sluice
