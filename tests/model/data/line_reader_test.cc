#include "model/data/line_reader.h"

#include <vector>

#include "gmock/gmock.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

using LineReaderLines = std::vector<std::pair<uint64_t, std::string>>;

LineReader ReaderOf(const std::string& path) { return LineReader(*TextReader::Open(path)); }

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

}  // namespace
}  // namespace sluice
