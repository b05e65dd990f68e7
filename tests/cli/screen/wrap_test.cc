#include "cli/screen/wrap.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_split.h"

namespace sluice::cli {
namespace {

TEST(WrapTest, ShortLinesStay) {
  EXPECT_EQ(Wrapped("", 10), "");
  EXPECT_EQ(Wrapped("0123456789", 10), "0123456789");
  EXPECT_EQ(Wrapped("  a   b ", 10), "  a   b ");
}

TEST(WrapTest, LinesBreakBetweenWordsAndAreIndented) {
  EXPECT_EQ(Wrapped("log loss 0.30, calibration 1.00", 16),
            "log loss 0.30,\n  calibration\n  1.00");
  EXPECT_EQ(Wrapped("    one two three", 12), "    one two\n      three");
}

TEST(WrapTest, NoWordOrNumberIsBroken) {
  const std::string line =
      "note: 68,661 examples of /a/long/path/that/fits/nowhere are in epoch 12";
  for (size_t width = 1; width < 100; ++width) {
    const std::string text = Wrapped(line, width);
    std::vector<std::string> words =
        absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
    std::vector<std::string> expected = absl::StrSplit(line, ' ');
    EXPECT_EQ(words, expected) << width;
    for (const absl::string_view one : absl::StrSplit(text, '\n')) {
      EXPECT_TRUE(one.size() <= width ||
                  one.find(' ', one.find_first_not_of(' ')) == std::string::npos)
          << width << ": " << one;
    }
  }
}

TEST(WrapTest, CommandsAndLiveLinesStayWhole) {
  const std::string command = "  sluice submit --job=FILE --log_dir=/tmp/a/folder";
  EXPECT_EQ(Wrapped(command, 20), command);
  const std::string live = "\rep 1/2 step 100 of very many steps\x1b[K";
  EXPECT_EQ(Wrapped(live, 20), live);
}

TEST(WrapTest, AClearedScreenBeginsWithALineThatBreaks) {
  EXPECT_EQ(Wrapped("\x1b[H\x1b[2Jcluster c, up 3 s", 12), "\x1b[H\x1b[2Jcluster c,\n  up 3 s");
}

TEST(WrapTest, ALineThatReplacesTheLiveLineBreaks) {
  EXPECT_EQ(Wrapped("\r\x1b[Kthe job keeps running", 12), "\r\x1b[Kthe job\n  keeps\n  running");
}

TEST(WrapTest, ColoursAndCharactersOfSeveralBytesTakeOneColumnOrNone) {
  EXPECT_EQ(Wrapped("\x1b[31mDEAD\x1b[0m abcde", 10), "\x1b[31mDEAD\x1b[0m abcde");
  EXPECT_EQ(Wrapped("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4 abcde", 10),
            "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4 abcde");
}

}  // namespace
}  // namespace sluice::cli
