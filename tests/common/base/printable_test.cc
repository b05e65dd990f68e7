#include "common/base/printable.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace sluice {
namespace {

TEST(PrintableTest, ValidTextIsUnchanged) {
  for (const char* text :
       {"", "a.csv:3: no label\n\tx", "Zürich", "日本", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, OtherBytesAreEscaped) {
  EXPECT_EQ(Printable(absl::string_view("a\0b\x7F\r", 5)), "a\\x00b\\x7f\\x0d");
  EXPECT_EQ(Printable("\xFF\xC3"), "\\xff\\xc3");           // an invalid and a cut character
  EXPECT_EQ(Printable("\xC0\x80"), "\\xc0\\x80");           // an overlong encoding
  EXPECT_EQ(Printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
}

TEST(PrintableTest, TextOnALineNeitherEndsItNorTurnsItAround) {
  for (const char* text : {"", "Zürich", "日本", "\xF0\x9F\x98\x80", "\xC2\xA0", "\xE2\x80\x94"}) {
    EXPECT_EQ(PrintableLine(text), text);
    EXPECT_TRUE(IsPrintableLine(text));
  }
  const std::pair<const char*, const char*> escaped[] = {
      {"a\nb\tc\rd", "a\\x0ab\\x09c\\x0dd"},
      {"\x1B[31m", "\\x1b[31m"},
      {"\xC2\x80\xC2\x9F", "\\xc2\\x80\\xc2\\x9f"},                    // C1 controls
      {"\xE2\x80\xAE", "\\xe2\\x80\\xae"},                             // U+202E
      {"\xE2\x80\x8F\xE2\x81\xA6", "\\xe2\\x80\\x8f\\xe2\\x81\\xa6"},  // U+200F, U+2066
      {"\xE2\x80\xA8", "\\xe2\\x80\\xa8"},                             // a line separator
      {"\xD8\x9C", "\\xd8\\x9c"},                                      // U+061C
      {"\xFF", "\\xff"},
  };
  for (const auto& [text, expected] : escaped) {
    EXPECT_EQ(PrintableLine(text), expected);
    EXPECT_FALSE(IsPrintableLine(text)) << expected;
  }
}

TEST(PrintableTest, LinesAfterTheFirstAreIndented) {
  EXPECT_EQ(PrintableLines("one"), "one");
  EXPECT_EQ(PrintableLines(""), "");
  EXPECT_EQ(PrintableLines("one\ntwo\x1b[2J\n\nI1126 forged"),
            "one\n    two\\x1b[2J\n    \n    I1126 forged");
}

TEST(PrintableTest, JsonStringsAreEscaped) {
  EXPECT_EQ(JsonQuoted(""), "\"\"");
  EXPECT_EQ(JsonQuoted("a \"b\" \\ c"), "\"a \\\"b\\\" \\\\ c\"");
  EXPECT_EQ(JsonQuoted("1\n2\t3\x01\x1f"), "\"1\\n2\\t3\\u0001\\u001f\"");
  EXPECT_EQ(JsonQuoted("Zürich/"), "\"Zürich/\"");
}

}  // namespace
}  // namespace sluice
