#include "common/base/printable.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(PrintableTest, TextStaysAsItIs) {
  for (const char* text :
       {"", "a.csv:3: no label\n\tx", "Zürich", "日本", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, OtherBytesAreEscaped) {
  EXPECT_EQ(Printable(absl::string_view("a\0b\x7F\r", 5)), "a\\x00b\\x7f\\x0d");
  EXPECT_EQ(Printable("\xFF\xC3"), "\\xff\\xc3");                    // never a character; a cut one
  EXPECT_EQ(Printable("\xC0\x80"), "\\xc0\\x80");                    // too long a form
  EXPECT_EQ(Printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(Printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // behind the last one
}

}  // namespace
}  // namespace sluice
