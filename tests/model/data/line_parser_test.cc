#include "model/data/line_parser.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using FirstWord = LibsvmParser::FirstWord;

DataConfig Config(const std::string& text) {
  DataConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

// The cells joined by '/', or the error.
std::string Split(const Delimited& format, std::string line) {
  std::vector<std::string_view> cells(10);
  const auto count = format.Split(&line[0], line.size(), &cells);
  if (!count.ok()) return std::string(count.status().message());
  std::string joined;
  for (size_t i = 0; i < *count; ++i) joined += (i > 0 ? "/" : "") + std::string(cells[i]);
  return joined;
}

std::string SplitCsv(const std::string& line) { return Split(Delimited(), line); }

TEST(DelimitedTest, LinesWithAndWithoutQuotesAreSplitAlike) {
  const std::string letters = ",,,\t  ab";
  uint32_t state = 7;
  for (const bool trim : {true, false}) {
    Delimited format;
    format.trim = trim;
    for (size_t size = 0; size < 300; ++size) {
      std::string line;
      while (line.size() < size) line += letters[(state = state * 1664525 + 1013904223) >> 29];
      std::vector<std::string_view> fast(310), slow(310), few(3);
      const auto n = format.Split(&line[0], size, &fast);
      ASSERT_TRUE(n.ok());
      ASSERT_EQ(*n, *format.SplitByCell(&line[0], size, &slow)) << line;
      ASSERT_EQ(fast, slow) << line;
      ASSERT_EQ(*format.Split(&line[0], size, &few), *n);  // counts what it does not store
      ASSERT_EQ(few[0], fast[0]);
    }
  }
}

TEST(DelimitedTest, CellsAreSplitAndTrimmed) {
  EXPECT_EQ(SplitCsv("a, b ,\tc"), "a/b/c");
  EXPECT_EQ(SplitCsv(",a,"), "/a/");
  EXPECT_EQ(SplitCsv("a"), "a");
  EXPECT_EQ(SplitCsv("a b, c d"), "a b/c d");
  Delimited untrimmed;
  untrimmed.trim = false;
  EXPECT_EQ(Split(untrimmed, "a, b "), "a/ b ");
}

TEST(DelimitedTest, QuotesProtectDelimitersAndDoubledQuotes) {
  EXPECT_EQ(SplitCsv("\"a,b\",c"), "a,b/c");
  EXPECT_EQ(SplitCsv("\"say \"\"hi\"\"\",c"), "say \"hi\"/c");
  EXPECT_EQ(SplitCsv("x, \" kept \" ,c"), "x/ kept /c");
  EXPECT_EQ(SplitCsv("\"\",\"\""), "/");
  EXPECT_EQ(SplitCsv("5\" disk,c"), "5\" disk/c");
  EXPECT_EQ(SplitCsv("a,\"b\""), "a/b");
}

TEST(DelimitedTest, BadQuotesAreErrors) {
  EXPECT_THAT(SplitCsv("a,\"b"), AllOf(HasSubstr("value 2"), HasSubstr("quote")));
  EXPECT_THAT(SplitCsv("\"a\"b,c"), AllOf(HasSubstr("value 1"), HasSubstr("quote")));
  EXPECT_THAT(SplitCsv("\"a\"\"\""), ::testing::Eq("a\""));
  EXPECT_THAT(SplitCsv("\""), AllOf(HasSubstr("value 1"), HasSubstr("quote")));
}

TEST(DelimitedTest, CriteoCellsAreTakenVerbatim) {
  EXPECT_EQ(Split(Delimited::Criteo(), "1\t\t \"a\t"), "1// \"a/");
}

TEST(DelimitedTest, TabSeparatedKeepsEmptyCells) {
  const auto tsv = Delimited::FromConfig(Config("format: TSV"));
  ASSERT_TRUE(tsv.ok());
  EXPECT_EQ(Split(*tsv, "\ta\t\t b \t"), "/a//b/");
  EXPECT_EQ(Split(*tsv, "\t\"x\ty\"\t"), "/x\ty/");
  EXPECT_FALSE(tsv->Skips("\t\t"));
}

TEST(DelimitedTest, CommentsAndBlankLinesAreSkipped) {
  const auto csv = Delimited::FromConfig(Config("format: CSV csv { comment_prefix: '|' }"));
  EXPECT_TRUE(csv->Skips("|1x3 Cross validator"));
  EXPECT_TRUE(csv->Skips(""));
  EXPECT_TRUE(csv->Skips("  \t"));
  EXPECT_FALSE(csv->Skips("a|"));
  EXPECT_FALSE(csv->Skips(" a"));
}

TEST(DelimitedTest, BadDelimitersAreRefused) {
  EXPECT_TRUE(Delimited::FromConfig(Config("format: CSV csv { delimiter: ';' }")).ok());
  for (const char* bad : {"delimiter: '\"'", "delimiter: '\\n'"}) {
    EXPECT_THAT(
        std::string(Delimited::FromConfig(Config(std::string("format: CSV csv {") + bad + "}"))
                        .status()
                        .message()),
        HasSubstr("data.csv.delimiter"));
  }
  EXPECT_THAT(
      std::string(
          Delimited::FromConfig(Config("format: TSV csv { delimiter: ',' }")).status().message()),
      HasSubstr("TSV"));
}

// The format of these options.
Delimited Csv(const std::string& options) {
  const auto format = Delimited::FromConfig(Config("format: CSV csv {" + options + "}"));
  EXPECT_TRUE(format.ok()) << format.status();
  return *format;
}

TEST(DelimitedTest, DelimitersMayHaveSeveralCharacters) {
  const Delimited format = Csv("delimiter: '::'");
  EXPECT_EQ(Split(format, "a::b:: c ::"), "a/b/c/");
  EXPECT_EQ(Split(format, "a:b::\"c::d\""), "a:b/c::d");
  EXPECT_EQ(Split(format, "a:::b"), "a/:b");
  EXPECT_EQ(Split(Csv("delimiter: ' | '"), "a | b | \"c | d\""), "a/b/c | d");
}

TEST(DelimitedTest, DelimitersMayBeMerged) {
  const Delimited format = Csv("delimiter: ' ' merge_delimiters: true");
  EXPECT_EQ(Split(format, "  a   b \"\"  c  "), "a/b//c");
  EXPECT_EQ(Split(format, "a b"), "a/b");
  EXPECT_TRUE(format.Skips("    "));
  EXPECT_FALSE(format.Skips("  a "));
  EXPECT_EQ(Split(Csv("merge_delimiters: true"), "a,, b,"), "a/b");
}

TEST(DelimitedTest, QuoteAndEscapeAreOfTheUsersChoice) {
  EXPECT_EQ(Split(Csv("quote: \"'\""), "'a,b',\"c\",'it''s'"), "a,b/\"c\"/it's");
  EXPECT_EQ(Split(Csv("quote: ''"), "\"a,b\""), "\"a/b\"");
  const Delimited escape = Csv("escape: '\\\\'");
  EXPECT_EQ(Split(escape, "a\\,b,c\\\\,\"d\\\"e\",f\\"), "a,b/c\\/d\"e/f\\");
  EXPECT_EQ(Split(escape, "\"a\\"), SplitCsv("\"a"));
  const Delimited null = Csv("escape: '\\\\' missing: '\\\\N'");
  EXPECT_EQ(Split(null, "\\N, \\N ,\\M"), "\\N/\\N/M");
}

// The values by column, "-" where missing; or the error.
template <typename Parser>
std::vector<std::string> Parse(Parser* parser, size_t columns, std::string line) {
  const absl::Status status = parser->Parse(&line[0], line.size());
  if (!status.ok()) return {std::string(status.message())};
  std::vector<std::string> values;
  for (size_t i = 0; i < columns; ++i)
    values.push_back(parser->cells().missing[i] ? "-" : parser->TextAt(i));
  return values;
}

TEST(DelimitedParserTest, MapsCellsToColumnsAndMarksMissing) {
  Delimited format;
  format.missing = {"?", "NA"};
  DelimitedParser parser(format, {2, -1, 0}, 3, {});
  EXPECT_THAT(Parse(&parser, 3, "a,b,c"), ElementsAre("c", "-", "a"));
  EXPECT_THAT(Parse(&parser, 3, "?,b,NA"), ElementsAre("-", "-", "-"));
  EXPECT_THAT(Parse(&parser, 3, ",b,N"), ElementsAre("N", "-", "-"));
}

TEST(DelimitedParserTest, WrongNumberOfValuesIsAnError) {
  DelimitedParser parser(Delimited(), {0}, 3, {"X names", "; is it Y?"});
  EXPECT_THAT(Parse(&parser, 1, "a"),
              ElementsAre(AllOf(HasSubstr("1 value,"), HasSubstr("X names 3"))));
  EXPECT_THAT(
      Parse(&parser, 1, "a,b"),
      ElementsAre(AllOf(HasSubstr("2 values"), HasSubstr("X names 3"), HasSubstr("is it Y?"))));
  EXPECT_THAT(Parse(&parser, 1, "a,b,c,d"),
              ElementsAre(AllOf(HasSubstr("4 values"), HasSubstr("X names 3"))));
}

TEST(LibsvmParserTest, IndicesWithAMissingValueAreLeftOut) {
  LibsvmParser parser({"label", "", "indices"}, {"NA"}, FirstWord::kLabel);
  std::string line = "1 3:NA 7:2";
  ASSERT_TRUE(parser.Parse(line.data(), line.size()).ok());
  const Cell& cell = parser.cells().typed[2];
  ASSERT_EQ(cell.size(), 1u);
  NumberText memory;
  EXPECT_EQ(TextOf(cell.values()[0], &memory), "7");
  std::string other = "1 3:none 7:2";
  EXPECT_FALSE(parser.Parse(other.data(), other.size()).ok());
}

TEST(LibsvmParserTest, ReadsNamedIndicesAndLeavesOthersMissing) {
  LibsvmParser parser({"label", "", "7", "3"}, {}, FirstWord::kLabel);
  EXPECT_THAT(Parse(&parser, 4, "+1 3:0.5 7:2 9:1"), ElementsAre("+1", "-", "2", "0.5"));
  EXPECT_THAT(Parse(&parser, 4, "-1 qid:4 3:1"), ElementsAre("-1", "-", "-", "1"));
  EXPECT_THAT(Parse(&parser, 4, "  0\t7:1  # 3:1"), ElementsAre("0", "-", "1", "-"));
  LibsvmParser scored({"label", "", "7", "3"}, {}, FirstWord::kFeature);
  EXPECT_THAT(Parse(&scored, 4, "3:1"), ElementsAre("-", "-", "-", "1"));
  LibsvmParser ids({"label", "", "3", "qid"}, {}, FirstWord::kLabel);
  EXPECT_THAT(Parse(&ids, 4, "1 qid:4 3:1"), ElementsAre("1", "-", "1", "4"));
}

TEST(DelimitedParserTest, ErrorsNameTheOptionThatMayReadTheLine) {
  DelimitedParser parser(Csv(""), {0}, 3, {});
  EXPECT_THAT(Parse(&parser, 1, "a,b\\,b,c"), ElementsAre(HasSubstr("data.csv.escape")));
  EXPECT_THAT(Parse(&parser, 1, "a,'b,b',c"), ElementsAre(HasSubstr("data.csv.quote")));
  EXPECT_THAT(Parse(&parser, 1, "a;b;c"), ElementsAre(HasSubstr("data.csv.delimiter")));
  EXPECT_THAT(Parse(&parser, 1, "a,\"b"), ElementsAre(HasSubstr("data.csv.quote: \"\"")));
  DelimitedParser blanks(Csv("delimiter: ' '"), {0}, 3, {});
  EXPECT_THAT(Parse(&blanks, 1, "a  b c"), ElementsAre(HasSubstr("merge_delimiters")));
}

TEST(DelimitedParserTest, ARepeatedHeaderIsNoExample) {
  DelimitedParser parser(Delimited(), {0}, 2, {}, "a,b");
  EXPECT_TRUE(parser.Skips("a,b"));
  EXPECT_TRUE(parser.RepeatsHeader("a,b"));
  EXPECT_FALSE(parser.Skips("a,c"));
  EXPECT_FALSE(parser.RepeatsHeader(""));
}

TEST(LibsvmParserTest, IndicesAreNumbers) {
  LibsvmParser parser({"label", "", "7", "3"}, {"nan"}, FirstWord::kLabel);
  EXPECT_THAT(Parse(&parser, 4, "1 007:2 03:nan"), ElementsAre("1", "-", "2", "-"));
  EXPECT_THAT(Parse(&parser, 4, "1 07:2 7:3"), ElementsAre(HasSubstr("twice")));
  EXPECT_THAT(Parse(&parser, 4, "1 f7:2"), ElementsAre(HasSubstr("no index")));
  EXPECT_THAT(Parse(&parser, 4, "1 -7:2"), ElementsAre(HasSubstr("negative index")));
  EXPECT_THAT(Parse(&parser, 4, "1 7.0:2"), ElementsAre(HasSubstr("no index")));
  EXPECT_THAT(Parse(&parser, 4, "1 0:7:1 1:9:0.5"), ElementsAre(HasSubstr("libffm")));
}

TEST(LibsvmParserTest, LabelsMayHaveWeights) {
  LibsvmParser parser({"label", "", "1", "2"}, {}, FirstWord::kLabel);
  EXPECT_THAT(Parse(&parser, 4, "1:0.5 2:4"), ElementsAre("1", "0.5", "-", "4"));
  EXPECT_THAT(Parse(&parser, 4, "1 qid:3 1:4"), ElementsAre("1", "-", "4", "-"));
  LibsvmParser own({"label", "9", "1"}, {}, FirstWord::kLabel);
  EXPECT_THAT(Parse(&own, 3, "1:0.5 1:4"), ElementsAre(HasSubstr("data.weight_column")));
  // For prediction a line may lack its label.
  LibsvmParser scored({"label", "", "1", "2"}, {}, FirstWord::kFeature);
  EXPECT_THAT(Parse(&scored, 4, "1:3 2:4"), ElementsAre("-", "-", "3", "4"));
  EXPECT_THAT(Parse(&scored, 4, "1:0.5 1:3 2:4"), ElementsAre("1", "0.5", "3", "4"));
}

TEST(LibsvmParserTest, AFileWithLabelsHasThemAlsoBelowTheFirstIndex) {
  const auto is_label = [](std::string_view cell) { return cell == "0" || cell == "1"; };
  LibsvmParser parser({"label", "", "1", "2"}, {}, FirstWord::kLabelByRule, is_label);
  EXPECT_THAT(Parse(&parser, 4, "1:0.5 2:4"), ElementsAre("1", "0.5", "-", "4"));
  EXPECT_THAT(Parse(&parser, 4, "2:4 3:1"), ElementsAre("-", "-", "-", "4"));
  EXPECT_EQ(LibsvmParser::SuggestsLabels("1 2:4", is_label), 1);
  EXPECT_EQ(LibsvmParser::SuggestsLabels("1:0.5 1:4", is_label), 1);
  EXPECT_EQ(LibsvmParser::SuggestsLabels("1:0.5 2:4", is_label), 0);
  EXPECT_EQ(LibsvmParser::SuggestsLabels("1:0.5", is_label), 0);
  EXPECT_EQ(LibsvmParser::SuggestsLabels("2:4 3:1", is_label), -1);
  EXPECT_EQ(LibsvmParser::SuggestsLabels("qid:1 1:4", is_label), -1);
  EXPECT_EQ(LibsvmParser::SuggestsLabels("7 1:4", is_label), 0);
}

TEST(LibsvmParserTest, AWordThatMayBeAFeatureIsNoLabelWhereLabelsArePlain) {
  LibsvmParser parser({"label", "", "1", "2"}, {}, FirstWord::kClearLabel);
  EXPECT_THAT(Parse(&parser, 4, "1 1:3 2:4"), ElementsAre("1", "-", "3", "4"));
  EXPECT_THAT(Parse(&parser, 4, "1:0.5 1:3"), ElementsAre("1", "0.5", "3", "-"));
  EXPECT_THAT(Parse(&parser, 4, "1:0.5 2:4"), ElementsAre(HasSubstr("+1:0.5")));
  EXPECT_THAT(Parse(&parser, 4, "+1:0.5 2:4"), ElementsAre("+1", "0.5", "-", "4"));
}

// What the first words of a file with these lines are; "no labels: ..." is the error.
std::string FirstWordsOf(const std::vector<std::string>& lines) {
  LibsvmLabels labels([](std::string_view cell) {
    return cell == "0" || cell == "1" || cell == "-1" || cell == "+1";
  });
  for (size_t i = 0; i < lines.size(); ++i) labels.Add(lines[i], i + 1);
  const auto first = labels.Decide();
  if (!first.ok()) return absl::StrCat("no labels: ", first.status().message());
  return *first == FirstWord::kLabel ? "labels with weights" : "plain labels";
}

TEST(LibsvmLabelsTest, MostLinesTellWhetherAFileHasLabels) {
  EXPECT_EQ(FirstWordsOf({}), "plain labels");
  EXPECT_EQ(FirstWordsOf({"1 1:3", "0 1:4", "1:0.5 2:1", "7:1 8:2"}), "plain labels");
  // Features without labels: dense ones, one-hot ones, and those whose first index varies.
  EXPECT_THAT(FirstWordsOf({"1:0.5 2:0.3", "1:0.7 2:0.1", "1:0.9"}),
              AllOf(HasSubstr("no labels"), HasSubstr("line 1"), HasSubstr("+1:0.5")));
  EXPECT_THAT(FirstWordsOf({"0:1 5:1", "1:1 4:1", "0:1 4:1"}), HasSubstr("no labels"));
  EXPECT_THAT(FirstWordsOf({"3:1 5:1", "1:2 4:1", "0:3 4:1"}), HasSubstr("no labels"));
  EXPECT_THAT(FirstWordsOf({"1 1:3", "1:0.5 2:1", "1:0.6 2:3"}), HasSubstr("no labels"));
  // Labels with weights.
  EXPECT_EQ(FirstWordsOf({"1:2 1:0.5", "0:0.5 1:0.7", "0:0.5 1:2"}), "labels with weights");
  EXPECT_EQ(FirstWordsOf({"1:2 5:1", "0:0.5 4:1", "0:2 8:1"}), "labels with weights");
  EXPECT_EQ(FirstWordsOf({"-1:2 5:1", "-1:3 5:1"}), "labels with weights");
  EXPECT_EQ(FirstWordsOf({"1 5:1", "-1:3 5:1", "1:2 6:1"}), "labels with weights");
}

TEST(LibsvmParserTest, ValuesThatMeanMissingAreThoseOfFeatures) {
  LibsvmParser parser({"label", "", "1", "2"}, {"-1", "0.5"}, FirstWord::kLabel);
  EXPECT_THAT(Parse(&parser, 4, "-1:0.5 1:-1 2:3"), ElementsAre("-1", "0.5", "-", "3"));
}

TEST(LibsvmParserTest, BadTokensAreErrors) {
  LibsvmParser parser({"label", "", "7"}, {}, FirstWord::kLabel);
  EXPECT_THAT(Parse(&parser, 3, "1 7"), ElementsAre(HasSubstr("\"7\"")));
  EXPECT_THAT(Parse(&parser, 3, "1 7:"), ElementsAre(HasSubstr("\"7:\"")));
  EXPECT_THAT(Parse(&parser, 3, "1 :7"), ElementsAre(HasSubstr("\":7\"")));
  EXPECT_THAT(Parse(&parser, 3, "1 7:1 7:2"), ElementsAre(HasSubstr("index 7")));
  EXPECT_TRUE(parser.Skips("# comment"));
  EXPECT_TRUE(parser.Skips(" "));
}

}  // namespace
}  // namespace sluice
