#include "common/base/printable.h"

#include <gtest/gtest.h>

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

TEST(PrintableTest, JsonStringsAreEscaped) {
  EXPECT_EQ(JsonQuoted(""), "\"\"");
  EXPECT_EQ(JsonQuoted("a \"b\" \\ c"), "\"a \\\"b\\\" \\\\ c\"");
  EXPECT_EQ(JsonQuoted("1\n2\t3\x01\x1f"), "\"1\\n2\\t3\\u0001\\u001f\"");
  EXPECT_EQ(JsonQuoted("Zürich/"), "\"Zürich/\"");
}

}  // namespace
}  // namespace sluice
