#include "model/data/text_reader.h"

#include <sys/stat.h>

#include "gmock/gmock.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<std::string> ReadAll(const std::string& path, size_t at_once = 7) {
  auto reader = TextReader::Open(path, Env::Real());
  if (!reader.ok()) return reader.status();
  std::string text, piece(at_once, '\0');
  while (true) {
    const auto got = (*reader)->Read(&piece[0], at_once);
    if (!got.ok()) return got.status();
    if (*got == 0) return text;
    text.append(piece, 0, *got);
    EXPECT_EQ((*reader)->offset(), text.size());
  }
}

std::string ErrorOf(const std::string& path) {
  const auto text = ReadAll(path);
  EXPECT_FALSE(text.ok());
  return std::string(text.status().message());
}

TEST(TextReaderTest, PlainAndGzipGiveTheSameText) {
  const TempFolder folder;
  const std::string text = "some text\nof two lines\n";
  EXPECT_EQ(*ReadAll(folder.Write("plain.gz", text)), text);  // the name does not matter
  EXPECT_EQ(*ReadAll(folder.Write("zipped", Gzip(text))), text);
}

TEST(TextReaderTest, GzipOfManyMembersIsOneText) {
  const TempFolder folder;
  EXPECT_EQ(*ReadAll(folder.Write("a", Gzip("one ") + Gzip("") + Gzip("two") + Gzip(""))),
            "one two");
}

TEST(TextReaderTest, EmptyFilesHaveNoText) {
  const TempFolder folder;
  EXPECT_EQ(*ReadAll(folder.Write("plain", "")), "");
  EXPECT_EQ(*ReadAll(folder.Write("one", "\x1f")), "\x1f");
  EXPECT_EQ(*ReadAll(folder.Write("zipped", Gzip(""))), "");
}

TEST(TextReaderTest, EveryTruncationOfGzipIsAnErrorThatNamesTheFile) {
  const TempFolder folder;
  const std::string whole = Gzip("some text that is long enough");
  for (size_t size = 2; size < whole.size(); ++size) {
    const std::string path = folder.Write("cut", whole.substr(0, size));
    EXPECT_THAT(ErrorOf(path), AllOf(HasSubstr(path), HasSubstr("truncated"))) << size;
  }
  EXPECT_THAT(ErrorOf(folder.Write("cut", whole + whole.substr(0, 5))), HasSubstr("truncated"));
}

TEST(TextReaderTest, DamagedGzipIsAnError) {
  const TempFolder folder;
  std::string bytes = Gzip("some text that is long enough");
  bytes[bytes.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(ErrorOf(folder.Write("damaged", bytes)), HasSubstr("damaged"));
  EXPECT_THAT(ErrorOf(folder.Write("tail", Gzip("text") + "not gzip")), HasSubstr("damaged"));
}

TEST(TextReaderTest, ZstdOfManyFramesIsOneText) {
  const TempFolder folder;
  const std::string text(300000, 'x');
  EXPECT_EQ(*ReadAll(folder.Write("a", Zstd("one ") + Zstd("") + Zstd(text) + Zstd("two"))),
            "one " + text + "two");
  EXPECT_EQ(*ReadAll(folder.Write("empty", Zstd(""))), "");
}

TEST(TextReaderTest, TruncatedAndDamagedZstdIsAnErrorThatNamesTheFile) {
  const TempFolder folder;
  std::string whole = Zstd("some text that is long enough");
  for (size_t size = 4; size < whole.size(); ++size) {
    const std::string path = folder.Write("cut", whole.substr(0, size));
    EXPECT_THAT(ErrorOf(path), AllOf(HasSubstr(path), HasSubstr("truncated"))) << size;
  }
  EXPECT_THAT(ErrorOf(folder.Write("tail", whole + "no zstd at all")), HasSubstr("damaged"));
  whole[whole.size() - 1] ^= 1;  // the checksum
  EXPECT_THAT(ErrorOf(folder.Write("damaged", whole)), HasSubstr("damaged"));
}

// The library accepts such a frame when it decompresses in pieces.
TEST(TextReaderTest, ZstdFramesHaveTheTextThatTheirHeaderSays) {
  const TempFolder folder;
  const std::string frame("\x28\xb5\x2f\xfd\x20\x2e\x01\0\0", 9);  // 46 bytes, and an empty block
  // The header of the last frame begins 5 bytes before the end of what is read at once.
  const std::string text = Zstd("some ");
  const uint32_t skipped = (128 << 10) - 5 - text.size() - 8;
  std::string before = text + "\x50\x2a\x4d\x18";  // a skippable frame
  before.append(reinterpret_cast<const char*>(&skipped), 4).append(skipped, 'x');
  for (const size_t at_once : {1, 7, 46, 65536}) {
    for (const std::string& file : {frame, before + frame}) {
      const auto read = ReadAll(folder.Write("short", file), at_once);
      EXPECT_TRUE(absl::IsDataLoss(read.status())) << at_once << " " << read.status();
    }
    EXPECT_EQ(*ReadAll(folder.Write("whole", before + Zstd("text")), at_once), "some text");
  }
}

TEST(TextReaderTest, AZstdWindowThatIsTooLargeIsNoDamage) {
  const TempFolder folder;
  // A frame of a window of 256 MiB, with an empty last block.
  const std::string path = folder.Write("long", std::string("\x28\xB5\x2F\xFD\0\x90\x01\0\0", 9));
  EXPECT_THAT(ErrorOf(path), AllOf(HasSubstr("window"), HasSubstr("zstd -dc --long=31"),
                                   Not(HasSubstr("damaged"))));
}

TEST(TextReaderTest, ZerosAfterGzipAreIgnored) {
  const TempFolder folder;
  const std::string zeros(300'000, '\0');
  EXPECT_EQ(*ReadAll(folder.Write("a", Gzip("text") + zeros)), "text");
  EXPECT_EQ(*ReadAll(folder.Write("a", Gzip("one ") + zeros + Gzip("two") + zeros)), "one two");
  EXPECT_THAT(ErrorOf(folder.Write("a", Gzip("text") + zeros + "x")), HasSubstr("gzip data"));
}

TEST(TextReaderTest, SkippableFramesOfZstdAreSkippedWhereverTheyAre) {
  const TempFolder folder;
  const std::string skippable("\x5A\x2A\x4D\x18\x05\0\0\0other", 13);
  EXPECT_EQ(*ReadAll(folder.Write(
                "a", skippable + Zstd("one ") + skippable + skippable + Zstd("two") + skippable)),
            "one two");
  EXPECT_THAT(ErrorOf(folder.Write("a", Zstd("one") + skippable.substr(0, 10))),
              HasSubstr("truncated"));
}

TEST(TextReaderTest, OtherFormsAreNamedAlsoInsideOfCompressedFiles) {
  const TempFolder folder;
  const std::string zip = "PK\x03\x04 and more";
  EXPECT_THAT(ErrorOf(folder.Write("a", zip)), HasSubstr("zip archive"));
  EXPECT_THAT(ErrorOf(folder.Write("a", Gzip(zip))), HasSubstr("zip archive"));
  EXPECT_THAT(ErrorOf(folder.Write("a", Zstd(zip))), HasSubstr("zip archive"));
}

TEST(TextReaderTest, SkipToGoesForwardToTheOffsetOrTheEnd) {
  const TempFolder folder;
  for (const std::string& path :
       {folder.Write("plain", "0123456789"), folder.Write("zipped", Gzip("0123456789")),
        folder.Write("zstd", Zstd("0123456789"))}) {
    auto reader = *TextReader::Open(path, Env::Real());
    EXPECT_EQ(reader->compressed(), path != folder.Path("plain"));
    ASSERT_TRUE(reader->SkipTo(4).ok());
    char c;
    EXPECT_EQ(*reader->Read(&c, 1), 1u);
    EXPECT_EQ(c, '4');
    ASSERT_TRUE(reader->SkipTo(UINT64_MAX).ok());
    EXPECT_EQ(reader->offset(), 10u);
    EXPECT_EQ(*reader->Read(&c, 1), 0u);
  }
}

TEST(TextReaderTest, OnlyRegularFilesAreOpened) {
  const TempFolder folder;
  EXPECT_THAT(ErrorOf(folder.Path("absent")),
              AllOf(HasSubstr(folder.Path("absent")), HasSubstr("No such file")));
  EXPECT_EQ(TextReader::Open(folder.Path("absent"), Env::Real()).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr(folder.path() + "/*"));
  ASSERT_EQ(mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(folder.Path("pipe")), HasSubstr(folder.Path("pipe")));
  EXPECT_EQ(TextReader::Open(folder.Path("pipe"), Env::Real()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TextReaderTest, IdentityChangesWithTheContents) {
  const TempFolder folder;
  const FileIdentity before = *IdentifyFile(folder.Write("a", "1"), Env::Real());
  EXPECT_TRUE(before == *IdentifyFile(folder.Path("a"), Env::Real()));
  EXPECT_FALSE(before == *IdentifyFile(folder.Write("a", "22"), Env::Real()));
  EXPECT_FALSE(IdentifyFile(folder.Path("b"), Env::Real()).ok());
}

}  // namespace
}  // namespace sluice
