// ZipReader against files of ZipWriter and of Python's zipfile (deflated).
#include "model/table_files/zip_reader.h"

#include <zlib.h>

#include "tests/model/table_files/table_files_for_test.h"

namespace sluice {
namespace {

// A file in memory.
class StringFile : public FileReader {
 public:
  static FileInfo InfoOf(const std::string& bytes) {
    FileInfo info;
    info.identity.size = bytes.size();
    return info;
  }
  explicit StringFile(std::string bytes) : FileReader(InfoOf(bytes)), bytes_(std::move(bytes)) {}
  absl::StatusOr<size_t> ReadAt(uint64_t offset, void* to, size_t n) override {
    if (offset >= bytes_.size()) return 0;
    return bytes_.copy(static_cast<char*>(to), n, offset);
  }

 private:
  const std::string bytes_;
};

template <typename... Numbers>
std::string Joined(Numbers... numbers) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&numbers), sizeof(numbers)), ...);
  return bytes;
}

// A zip with one deflated member, without zip64, as other programs write it.
std::string DeflatedZip(const std::string& text) {
  std::string packed(compressBound(text.size()), '\0');
  z_stream z = {};
  deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  deflate(&z, Z_FINISH);
  packed.resize(z.total_out);
  deflateEnd(&z);
  const uint32_t crc =
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
  const uint32_t stored = static_cast<uint32_t>(packed.size());
  const uint32_t bytes = static_cast<uint32_t>(text.size());
  const std::string facts = Joined(uint16_t{8}, uint32_t{0}, crc, stored, bytes, uint16_t{1});
  std::string zip = Joined(uint32_t{0x04034b50}, uint16_t{20}, uint16_t{0}) + facts +
                    Joined(uint16_t{0}) + "a" + packed;
  const uint32_t at = static_cast<uint32_t>(zip.size());
  const std::string entry =
      Joined(uint32_t{0x02014b50}, uint16_t{20}, uint16_t{20}, uint16_t{0}) + facts +
      Joined(uint16_t{0}, uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0}, uint32_t{0}) + "a";
  return zip + entry +
         Joined(uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, uint16_t{1}, uint16_t{1},
                static_cast<uint32_t>(entry.size()), at, uint16_t{0});
}

absl::StatusOr<std::string> ReadMember(const std::string& zip, size_t piece) {
  auto reader = ZipReader::Open(std::make_shared<StringFile>(zip));
  if (!reader.ok()) return reader.status();
  auto stream = (*reader)->Read((*reader)->members().at(0));
  if (!stream.ok()) return stream.status();
  std::string text, some(piece, '\0');
  while (true) {
    const auto got = (*stream)->Read(some.data(), piece);
    if (!got.ok()) return got.status();
    if (*got == 0) return text;
    text.append(some, 0, *got);
  }
}

std::string LongText() {
  std::string text;
  for (int64_t i = 0; i < 100000; ++i) absl::StrAppend(&text, i * i % 977, ",");
  return text;
}

class ZipReaderTest : public TableFilesTest {};

TEST_F(ZipReaderTest, DeflatedMembersAreReadInPieces) {
  const std::string text = LongText();
  for (const size_t piece : {7u, 65536u, 10000000u}) {
    const auto read = ReadMember(DeflatedZip(text), piece);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
  }
}

TEST_F(ZipReaderTest, StoredMembersOfTheWriterAreRead) {
  const std::string text = LongText();
  WriteNpzFile("a.npz", {{"x", "<f4", {1}, text}, {"y", "<f4", {2}, "abcdefgh"}});
  EXPECT_EQ(ReadArray(Path("a.npz"), "x"), EncodeNpyHeader("<f4", {1}) + text);
  EXPECT_EQ(ReadArray(Path("a.npz"), "y"), EncodeNpyHeader("<f4", {2}) + "abcdefgh");
}

TEST_F(ZipReaderTest, EveryDamageOfAByteIsAnErrorOrHarmless) {
  const std::string text = "some text that is short", zip = DeflatedZip(text);
  for (size_t at = 0; at < zip.size(); ++at) {
    std::string damaged = zip;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const auto read = ReadMember(damaged, 100);
    if (read.ok()) {
      EXPECT_EQ(*read, text) << at;
    }
    const auto cut = ReadMember(zip.substr(0, at), 100);
    EXPECT_FALSE(cut.ok()) << at;
  }
}

}  // namespace
}  // namespace sluice
