#include "model/data/line_reader.h"

#include <vector>

#include "gmock/gmock.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

using LineReaderLines = std::vector<std::pair<uint64_t, std::string>>;

LineReader ReaderOf(const std::string& path) {
  return LineReader(*TextReader::Open(path, Env::Real()));
}

LineReaderLines Rest(LineReader* reader) {
  LineReaderLines lines;
  LineReader::Line line;
  while (true) {
    const auto more = reader->Next(&line);
    EXPECT_TRUE(more.ok());
    if (!*more) return lines;
    lines.emplace_back(line.offset, line.too_long ? "(too long)" : std::string(line.text()));
  }
}

TEST(LineReaderTest, LinesHaveOffsetsAndNoLineEnds) {
  const TempFolder folder;
  LineReader reader = ReaderOf(folder.Write("a", "one\r\n\ntwo\n\r\nlast"));
  using P = std::pair<uint64_t, std::string>;
  EXPECT_THAT(Rest(&reader),
              ElementsAre(P(0, "one"), P(5, ""), P(6, "two"), P(10, ""), P(12, "last")));
  EXPECT_EQ(reader.next_offset(), 16u);
}

TEST(LineReaderTest, SeekFindsTheFirstLineAtOrAfterEveryOffset) {
  const TempFolder folder;
  const std::string text = "one\n\nthree\nfour";
  for (const std::string& path :
       {folder.Write("plain", text), folder.Write("zipped", Gzip(text))}) {
    LineReader all = ReaderOf(path);
    const LineReaderLines lines = Rest(&all);
    for (uint64_t offset = 0; offset <= text.size() + 2; ++offset) {
      LineReaderLines expected;
      for (const auto& line : lines) {
        if (line.first >= offset) expected.push_back(line);
      }
      LineReader reader = ReaderOf(path);
      ASSERT_TRUE(reader.CanSeek(offset));
      ASSERT_TRUE(reader.Seek(offset).ok());
      EXPECT_EQ(Rest(&reader), expected) << offset;
    }
  }
}

TEST(LineReaderTest, SeeksToAnyLaterOffset) {
  const TempFolder folder;
  const std::string path = folder.Write("a", "one\ntwo\nthree\nfour\n");
  for (uint64_t offset = 5; offset < 19; ++offset) {
    LineReader reader = ReaderOf(path), fresh = ReaderOf(path);
    LineReader::Line line;
    ASSERT_TRUE(*reader.Next(&line) && *reader.Next(&line));  // "two" starts at 4
    ASSERT_TRUE(reader.CanSeek(offset));
    ASSERT_TRUE(reader.Seek(offset).ok() && fresh.Seek(offset).ok());
    EXPECT_EQ(Rest(&reader), Rest(&fresh)) << offset;
    EXPECT_FALSE(reader.CanSeek(4));
  }
}

TEST(LineReaderTest, LinesAtTheLimitAreWholeAndLongerOnesAreMarked) {
  const TempFolder folder;
  const size_t limit = LineReader::kMaxLineBytes;
  for (const char* end : {"\n", "\r\n"}) {
    const std::string text = std::string(limit, 'a') + end + std::string(limit + 1, 'b') + end +
                             "c" + end + std::string(3 * limit, 'd') + end + "e" + end +
                             std::string(limit + 1, 'f');
    LineReader reader = ReaderOf(folder.Write("long", text));
    const LineReaderLines lines = Rest(&reader);
    ASSERT_EQ(lines.size(), 6u);
    EXPECT_EQ(lines[0].second, std::string(limit, 'a'));
    EXPECT_EQ(lines[1].second, "(too long)");
    EXPECT_EQ(lines[2].second, "c");
    EXPECT_EQ(lines[3].second, "(too long)");
    EXPECT_EQ(lines[4].second, "e");
    EXPECT_EQ(lines[5].second, "(too long)");
    EXPECT_EQ(text[lines[4].first], 'e');
    EXPECT_EQ(reader.next_offset(), text.size());
  }
}

// Text in memory that counts the bytes read from it.
class CountingReader : public TextReader {
 public:
  CountingReader(std::string text, uint64_t* read)
      : TextReader("text", FileIdentity()), text_(std::move(text)), read_(read) {}
  bool compressed() const override { return false; }
  absl::Status SkipTo(uint64_t offset) override {
    offset_ = std::min<uint64_t>(offset, text_.size());
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<size_t> ReadSome(char* to, size_t n) override {
    n = std::min<size_t>(n, text_.size() - offset_);
    text_.copy(to, n, offset_);
    *read_ += n;
    return n;
  }
  const std::string text_;
  uint64_t* const read_;
};

TEST(LineReaderTest, LittleTextIsReadAfterTheExpectedEnd) {
  std::string text;
  while (text.size() < 3000000) text += std::string(text.size() % 300, 'x') + "\n";
  text += std::string(400000, 'y') + "\n";
  for (const uint64_t begin : {uint64_t{0}, uint64_t{500001}}) {
    for (const uint64_t length : {uint64_t{1}, uint64_t{1000}, uint64_t{524288}, text.size()}) {
      uint64_t read = 0, lines = 0;
      LineReader reader(std::make_unique<CountingReader>(text, &read));
      reader.ExpectEnd(begin + length);
      ASSERT_TRUE(reader.Seek(begin).ok());
      LineReader::Line line;
      while (reader.next_offset() < begin + length && *reader.Next(&line)) ++lines;
      EXPECT_TRUE(lines > 0 || length < 1000);
      EXPECT_LE(read, length + 2048);
    }
  }
  // A long line across the end is read whole.
  uint64_t read = 0;
  LineReader reader(std::make_unique<CountingReader>(text, &read));
  reader.ExpectEnd(text.size() - 300000);
  ASSERT_TRUE(reader.Seek(text.size() - 400001).ok());
  LineReader::Line line;
  ASSERT_TRUE(*reader.Next(&line));
  EXPECT_EQ(line.size, 400000u);
}

TEST(LineReaderTest, SmallLinesAcrossManyBuffersAreAllRead) {
  const TempFolder folder;
  std::string text;
  LineReaderLines expected;
  for (int i = 0; i < 60000; ++i) {
    expected.emplace_back(text.size(), std::string(i % 97, 'x'));
    text += expected.back().second + "\n";
  }
  LineReader plain = ReaderOf(folder.Write("plain", text)),
             zipped = ReaderOf(folder.Write("zipped", Gzip(text)));
  EXPECT_TRUE(Rest(&plain) == expected);
  EXPECT_TRUE(Rest(&zipped) == expected);
}

RecordRule CsvRule() {
  RecordRule rule;
  rule.quote = '"';
  return rule;
}

LineReader RecordReaderOf(const std::string& path, const RecordRule& rule = CsvRule()) {
  return LineReader(*TextReader::Open(path, Env::Real()), rule);
}

std::vector<std::string> RecordsOf(const std::string& text, const RecordRule& rule = CsvRule()) {
  const TempFolder folder;
  LineReader reader = RecordReaderOf(folder.Write("a", text), rule);
  std::vector<std::string> records;
  for (const auto& [offset, record] : Rest(&reader)) records.push_back(record);
  return records;
}

TEST(LineReaderTest, LineEndsInQuotesBelongToTheRecord) {
  EXPECT_THAT(RecordsOf("a,\"b\nc\"\nd\n"), ElementsAre("a,\"b\nc\"", "d"));
  EXPECT_THAT(RecordsOf("\"a\r\nb\",c\r\nd"), ElementsAre("\"a\r\nb\",c", "d"));
  EXPECT_THAT(RecordsOf("\"a\"\"\n\"\"b\",1\nc\n"), ElementsAre("\"a\"\"\n\"\"b\",1", "c"));
  EXPECT_THAT(RecordsOf("\"\",\"\n\"\nc"), ElementsAre("\"\",\"\n\"", "c"));
  EXPECT_THAT(RecordsOf("a, \"b\nc\"\n"), ElementsAre("a, \"b\nc\""));
  EXPECT_THAT(RecordsOf("\xEF\xBB\xBF\"a\nb\"\nc"), ElementsAre("\xEF\xBB\xBF\"a\nb\"", "c"));
}

TEST(LineReaderTest, QuotesElsewhereEndNothing) {
  EXPECT_THAT(RecordsOf("5\" disk,a\nb\"\nc\n"), ElementsAre("5\" disk,a", "b\"", "c"));
  // A lone quote at the start of a cell spoils its own line only.
  EXPECT_THAT(RecordsOf("a,\"b\nc\nd\n"), ElementsAre("a,\"b", "c", "d"));
  const std::string far(RecordRule::kMostBytes, 'x');
  EXPECT_THAT(RecordsOf("a,\"b\n" + far + "\nc\"\n"), ElementsAre("a,\"b", far, "c\""));
  RecordRule comments = CsvRule();
  comments.comment_prefix = "#";
  EXPECT_THAT(RecordsOf("#,\"b\nc,\"d\ne\"\n", comments), ElementsAre("#,\"b", "c,\"d\ne\""));
  RecordRule plain;
  EXPECT_THAT(RecordsOf("\"a\nb\"\n", plain), ElementsAre("\"a", "b\""));
}

TEST(LineReaderTest, OnlyAQuoteBeforeADelimiterOrALineEndClosesACell) {
  EXPECT_THAT(RecordsOf("a,\"b\nc,\"d\ne\n"), ElementsAre("a,\"b", "c,\"d", "e"));
  EXPECT_THAT(RecordsOf("a,\"b\nc\" ,d\ne"), ElementsAre("a,\"b\nc\" ,d", "e"));
  EXPECT_THAT(RecordsOf("a,\"b\r\nc\" \t\r\ne"), ElementsAre("a,\"b\r\nc\" \t", "e"));
  EXPECT_THAT(RecordsOf("a,\"b\nc\" d,e\nf"), ElementsAre("a,\"b", "c\" d,e", "f"));
  // The later cell is closed wrongly; so is the earlier one.
  EXPECT_THAT(RecordsOf("a,\"b\nc\",\"d\ne\"f\n"), ElementsAre("a,\"b", "c\",\"d", "e\"f"));
  EXPECT_THAT(RecordsOf("\"a\"b,\"c\nd\"\n"), ElementsAre("\"a\"b,\"c", "d\""));
  RecordRule rule = CsvRule();
  rule.trim = false;
  EXPECT_THAT(RecordsOf("a,\"b\nc\" ,d\n", rule), ElementsAre("a,\"b", "c\" ,d"));
  rule.delimiter = "\t";
  EXPECT_THAT(RecordsOf("a\t\"b\nc\"\td\n", rule), ElementsAre("a\t\"b\nc\"\td"));
}

TEST(LineReaderTest, LinesThatLookLikeRecordsAreNotJoined) {
  RecordRule rule = CsvRule();
  rule.fewest_cells = rule.most_cells = 3;
  const std::string inner = "1,2,x\n3,4,\n5,\"\",y\nodd\n";
  // A lone quote at the start of a cell, and one at the end of a later cell.
  EXPECT_EQ(RecordsOf("1,2,\"a\n" + inner + "7,8,b\"\n9\n", rule).size(), 7u);
  EXPECT_EQ(RecordsOf("\"1,2,a\n" + inner + "7\",8,b", rule).size(), 6u);
  EXPECT_EQ(RecordsOf("1,2,\"a\n" + inner + "7,b\",\"c\n" + inner + "8,9,d\"\n", rule).size(), 11u);
  RecordRule unknown = CsvRule();
  EXPECT_EQ(RecordsOf("1,2,\"a\n" + inner + "7,8,b\"\n9\n", unknown).size(), 7u);
  RecordRule other = rule;
  other.delimiter = "::";
  EXPECT_EQ(RecordsOf("1::2::\"a\n1::2::x\n3::4::5\n7::8::b\"\n", other).size(), 4u);
  RecordRule merged = rule;
  merged.delimiter = " ";
  merged.merge = true;
  EXPECT_EQ(RecordsOf(" 1  2 \"a\n1 2   x \n3 4 5\n7 8 b\"\n", merged).size(), 4u);
}

TEST(LineReaderTest, TextWithDelimitersInAQuotedCellIsOneRecord) {
  RecordRule rule = CsvRule();
  rule.fewest_cells = rule.most_cells = 2;
  const std::string address = "1,\"J. Smith\n12 Main St, Apt 4\nSpringfield, IL\nUSA\"";
  EXPECT_THAT(RecordsOf(address + "\n", rule), ElementsAre(address));
  const std::string table = "1,\"a,b\nc,d\ne,f\ng,h\ni,j\"";
  EXPECT_THAT(RecordsOf(table, rule), ElementsAre(table));
  // Too few lines to tell.
  EXPECT_THAT(RecordsOf("1,\"a\n2,b\n3,c\"\n", rule), ElementsAre("1,\"a\n2,b\n3,c\""));
  rule.fewest_cells = rule.most_cells = 3;
  const std::string middle = "1,\"J. Smith\n12 Main St, Apt 4\nSpringfield, IL\nUSA\",2";
  EXPECT_THAT(RecordsOf(middle, rule), ElementsAre(middle));
  // One cell to a line tells nothing.
  rule.fewest_cells = rule.most_cells = 1;
  EXPECT_THAT(RecordsOf("\"a\nb\nc\nd\nd\nf\"", rule), ElementsAre("\"a\nb\nc\nd\nd\nf\""));
}

TEST(LineReaderTest, EscapesKeepQuotesAndLineEnds) {
  RecordRule rule = CsvRule();
  rule.escape = '\\';
  EXPECT_THAT(RecordsOf("\"a\\\"\nb\",c\nd\n", rule), ElementsAre("\"a\\\"\nb\",c", "d"));
  EXPECT_THAT(RecordsOf("a\\\nb\\\\\nc\n", rule), ElementsAre("a\\\nb\\\\", "c"));
  EXPECT_THAT(RecordsOf("a\\,\"b\nc\n", rule), ElementsAre("a\\,\"b", "c"));
}

TEST(LineReaderTest, DelimitersThatOverlapThemselvesAreFoundFromLeftToRight) {
  RecordRule rule = CsvRule();
  rule.delimiter = "::";
  EXPECT_THAT(RecordsOf("a::\"b\nc\"\nd\n", rule), ElementsAre("a::\"b\nc\"", "d"));
  // The second cell is `:"b`, in which the quote is text.
  EXPECT_THAT(RecordsOf("a:::\"b\nc\"\nd\n", rule), ElementsAre("a:::\"b", "c\"", "d"));
  EXPECT_THAT(RecordsOf("a::::\"b\nc\"\nd\n", rule), ElementsAre("a::::\"b\nc\"", "d"));
  EXPECT_THAT(RecordsOf("a::: \"b\nc\"\nd\n", rule), ElementsAre("a::: \"b", "c\"", "d"));
  rule.escape = '\\';
  EXPECT_THAT(RecordsOf("a\\:::\"b\nc\"\nd\n", rule), ElementsAre("a\\:::\"b\nc\"", "d"));
  EXPECT_THAT(RecordsOf("a\\::\"b\nc\"\nd\n", rule), ElementsAre("a\\::\"b", "c\"", "d"));
}

// Text of many cells of these kinds.
std::string RandomRecords(uint64_t seed, size_t bytes, const std::vector<std::string>& cells) {
  std::string text;
  while (text.size() < bytes) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    text += cells[(seed >> 33) % cells.size()];
    seed = seed * 6364136223846793005 + 1442695040888963407;
    text += (seed >> 33) % 4 == 0 ? "\n" : ",";
  }
  return text;
}

// From any offset a reader must find the record that reading from the front finds.
void ExpectEverySeekAgrees(const std::string& text, const RecordRule& rule = CsvRule()) {
  const TempFolder folder;
  const std::string path = folder.Write("a", text);
  LineReader all = RecordReaderOf(path, rule);
  const LineReaderLines records = Rest(&all);
  size_t next = 0;
  for (uint64_t offset = 0; offset < text.size(); offset += 997) {
    while (next < records.size() && records[next].first < offset) ++next;
    LineReader reader = RecordReaderOf(path, rule);
    ASSERT_TRUE(reader.Seek(offset).ok());
    ASSERT_EQ(reader.next_offset(), next < records.size() ? records[next].first : text.size())
        << offset;
  }
}

TEST(LineReaderTest, RecordsAreFoundFromTheTextShortlyBefore) {
  const std::vector<std::string> plain = {"1", "abc", "2.5", "", "a longer value of some words"};
  const std::vector<std::string> quoted = {"\"a,b\"", "\"x\"", "7", "\"say \"\"hi\"\"\""};
  const std::vector<std::string> lines = {"\"a\nb\"", "\"\n\n\"", "\"1,\n2\"", "7", "\"q\"\"\n\""};
  const std::vector<std::string> wild = {"\"", "a\"b", "\"c\nd\"", "\"e\"f", "\n", "7", "\"\""};
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    ExpectEverySeekAgrees(RandomRecords(seed, 400'000, plain));
    ExpectEverySeekAgrees(RandomRecords(seed, 400'000, quoted));
    ExpectEverySeekAgrees(RandomRecords(seed, 400'000, lines));
    ExpectEverySeekAgrees(RandomRecords(seed, 400'000, wild));
    // Lone quotes before and after cells, with lines between them that are records or parts of one.
    for (const size_t cells : {2, 3}) {
      RecordRule known = CsvRule();
      known.fewest_cells = known.most_cells = cells;
      std::vector<std::string> lone(60, cells == 2 ? "1,2\n" : "1,2,3\n");
      lone.insert(lone.end(), {"\"wide", "tall\"", "\"in\nch\"", "\"a,b\"", "9", "9"});
      ExpectEverySeekAgrees(RandomRecords(seed, 400'000, lone), known);
    }
    RecordRule escapes = CsvRule();
    escapes.escape = '\\';
    ExpectEverySeekAgrees(RandomRecords(seed, 300'000, {"\\\"", "a\\", "\"b\\\"\n\"", "7"}),
                          escapes);
  }
  // Lines that are longer than the first look back.
  const std::string longer(150'000, 'x');
  ExpectEverySeekAgrees(RandomRecords(1, 3'000'000, {longer, "7", "\"a\nb\""}));
  // A cell that looks like records, and records that look like a cell.
  std::string same;
  while (same.size() < 300'000) same += "\",\"\n";
  ExpectEverySeekAgrees(same);
  ExpectEverySeekAgrees("x" + same);
  ExpectEverySeekAgrees(std::string(300'000, '"') + "\n" + std::string(300'000, 'a'), CsvRule());
}

TEST(LineReaderTest, TextOfCrAloneIsNamed) {
  const TempFolder folder;
  LineReader reader = ReaderOf(folder.Write("a", "a,b\r1,2\r3,4\r"));
  LineReader::Line line;
  const auto next = reader.Next(&line);
  EXPECT_EQ(next.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(next.status().message()), ::testing::HasSubstr("CR alone"));
  LineReader one = ReaderOf(folder.Write("a", "1,2\r"));
  EXPECT_TRUE(*one.Next(&line));
  LineReader inside = ReaderOf(folder.Write("a", "a\rb\nc\n"));
  EXPECT_TRUE(*inside.Next(&line));
}

// A piece may begin in a line of several long cells, of which no end is near.
TEST(LineReaderTest, SeekFromTheMiddleOfALongLineFindsTheNextOne) {
  const TempFolder folder;
  for (const size_t cell : {20'000, 200'000, 380'000}) {
    std::string text;
    while (text.size() < 1'300'000) text += "7,8,9\n";
    const uint64_t first = text.size();
    const std::string line =
        "1,\"" + std::string(cell, 'a') + "\",\"" + std::string(400'000 - cell, 'b') + "\"\n";
    for (int i = 0; i < 3; ++i) text += line;
    const std::string path = folder.Write("a", text);
    for (uint64_t inside = 1; inside < line.size(); inside += 13'000) {
      LineReader reader = RecordReaderOf(path);
      ASSERT_TRUE(reader.Seek(first + inside).ok());
      const LineReaderLines lines = Rest(&reader);
      ASSERT_EQ(lines.size(), 2u) << cell << " " << inside;
      EXPECT_EQ(lines[0].first, first + line.size()) << cell << " " << inside;
    }
  }
}

TEST(LineReaderTest, ARecordThatHoldsLineEndsIsNoTextOfCrLineEnds) {
  const TempFolder folder;
  LineReader reader = RecordReaderOf(folder.Write("a", "1,\"a\r\nb\""));
  EXPECT_EQ(Rest(&reader).size(), 1u);
}

}  // namespace
}  // namespace sluice
