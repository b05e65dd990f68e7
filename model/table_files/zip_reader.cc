#include "model/table_files/zip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50;
constexpr uint32_t kDirectoryEnd = 0x06054b50, kDirectoryEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr size_t kLocalHeaderBytes = 30, kDirectoryEntryBytes = 46, kDirectoryEndBytes = 22;
constexpr size_t kDirectoryEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr uint64_t kMostComment = 65535;
// A bound for what a damaged file may ask for.
constexpr uint64_t kMostDirectoryBytes = 64 << 20;
constexpr uint16_t kStored = 0, kDeflated = 8, kEncrypted = 1;

template <typename Number>
Number Get(absl::string_view bytes, size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

absl::Status NoZip(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("is no zip file, or damaged: ", why));
}

// Replaces sizes that do not fit 32 bits by those of the zip64 field.
absl::Status ReadZip64(absl::string_view extra, ZipReader::Member* member) {
  while (extra.size() >= 4) {
    const uint16_t id = Get<uint16_t>(extra, 0), n = Get<uint16_t>(extra, 2);
    if (extra.size() < 4u + n) return NoZip("an extra field is cut off");
    absl::string_view field = extra.substr(4, n);
    extra.remove_prefix(4u + n);
    if (id != 1) continue;
    for (uint64_t* size : {&member->bytes, &member->stored_bytes, &member->header_offset}) {
      if (*size != UINT32_MAX) continue;
      if (field.size() < sizeof(uint64_t)) return NoZip("a zip64 field is cut off");
      *size = Get<uint64_t>(field, 0);
      field.remove_prefix(sizeof(uint64_t));
    }
  }
  return absl::OkStatus();
}

// The bytes of a member, inflated where they are deflated, with their checksum.
class MemberStream : public ByteStream {
 public:
  MemberStream(const ZipReader::Member& member, FileStream stored)
      : member_(member), stored_(std::move(stored)) {}
  ~MemberStream() override {
    if (inflating_) inflateEnd(&z_);
  }

  absl::StatusOr<size_t> Read(void* to, size_t n) override {
    n = std::min<uint64_t>(n, member_.bytes - done_);
    if (n == 0) return 0;
    SLUICE_ASSIGN_OR_RETURN(const size_t got,
                            member_.method == kStored ? stored_.Read(to, n) : Inflate(to, n));
    if (got < n) return NoZip(absl::StrCat("member ", member_.name, " is cut off"));
    crc_ = static_cast<uint32_t>(crc32_z(crc_, static_cast<const Bytef*>(to), n));
    done_ += n;
    if (done_ == member_.bytes && crc_ != member_.crc)
      return NoZip(absl::StrCat("the checksum of member ", member_.name, " is wrong"));
    return n;
  }

 private:
  absl::StatusOr<size_t> Inflate(void* to, size_t n) {
    if (!inflating_) {
      if (inflateInit2(&z_, -MAX_WBITS) != Z_OK) return absl::ResourceExhaustedError("no memory");
      inflating_ = true;
      input_.resize(64 << 10);
    }
    size_t done = 0;
    while (done < n) {
      if (z_.avail_in == 0) {
        SLUICE_ASSIGN_OR_RETURN(const size_t got, stored_.Read(input_.data(), input_.size()));
        z_.next_in = input_.data();
        z_.avail_in = static_cast<uInt>(got);
      }
      z_.next_out = static_cast<Bytef*>(to) + done;
      z_.avail_out = static_cast<uInt>(std::min<size_t>(n - done, 1 << 30));
      const uInt room = z_.avail_out;
      const int code = inflate(&z_, Z_NO_FLUSH);
      done += room - z_.avail_out;
      if (code == Z_STREAM_END) break;
      if (code != Z_OK)
        return NoZip(absl::StrCat("member ", member_.name, " cannot be decompressed"));
    }
    return done;
  }

  const ZipReader::Member member_;
  FileStream stored_;
  z_stream z_ = {};
  bool inflating_ = false;
  std::vector<Bytef> input_;
  uint64_t done_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace

absl::StatusOr<std::string> ZipReader::Bytes(uint64_t offset, size_t n) const {
  std::string bytes(n, '\0');
  FileStream stream(file_, offset, offset + n);
  SLUICE_ASSIGN_OR_RETURN(const size_t got, stream.Read(bytes.data(), n));
  if (got < n) return NoZip("it is cut off");
  return bytes;
}

absl::StatusOr<std::unique_ptr<ZipReader>> ZipReader::Open(std::shared_ptr<FileReader> file) {
  std::unique_ptr<ZipReader> reader(new ZipReader(std::move(file)));
  SLUICE_RETURN_IF_ERROR(reader->ReadDirectory());
  return reader;
}

absl::Status ZipReader::ReadDirectory() {
  const uint64_t size = file_->info().identity.size;
  const uint64_t n = std::min(size, kMostComment + kDirectoryEndBytes);
  SLUICE_ASSIGN_OR_RETURN(const std::string tail, Bytes(size - n, n));
  const absl::string_view text = tail;
  const size_t end = text.rfind(absl::string_view("PK\x05\x06", 4));
  if (end == absl::string_view::npos || text.size() - end < kDirectoryEndBytes ||
      Get<uint32_t>(text, end) != kDirectoryEnd)
    return NoZip("it has no directory at its end");
  uint64_t entries = Get<uint16_t>(text, end + 10);
  uint64_t bytes = Get<uint32_t>(text, end + 12), offset = Get<uint32_t>(text, end + 16);
  const uint64_t end_offset = size - n + end;
  if (end_offset >= kLocator64Bytes) {
    SLUICE_ASSIGN_OR_RETURN(const std::string locator,
                            Bytes(end_offset - kLocator64Bytes, kLocator64Bytes));
    if (Get<uint32_t>(locator, 0) == kLocator64) {
      const uint64_t at = Get<uint64_t>(locator, 8);
      if (at > size || size - at < kDirectoryEnd64Bytes) return NoZip("its zip64 end is missing");
      SLUICE_ASSIGN_OR_RETURN(const std::string end64, Bytes(at, kDirectoryEnd64Bytes));
      if (Get<uint32_t>(end64, 0) != kDirectoryEnd64) return NoZip("its zip64 end is missing");
      entries = Get<uint64_t>(end64, 32);
      bytes = Get<uint64_t>(end64, 40);
      offset = Get<uint64_t>(end64, 48);
    }
  }
  if (bytes > kMostDirectoryBytes || offset > size || bytes > size - offset)
    return NoZip("its directory lies outside of it");
  SLUICE_ASSIGN_OR_RETURN(const std::string directory, Bytes(offset, bytes));
  absl::string_view rest = directory;
  for (uint64_t i = 0; i < entries; ++i) {
    if (rest.size() < kDirectoryEntryBytes || Get<uint32_t>(rest, 0) != kDirectoryEntry)
      return NoZip("its directory is cut off");
    Member member;
    member.flags = Get<uint16_t>(rest, 8);
    member.method = Get<uint16_t>(rest, 10);
    member.crc = Get<uint32_t>(rest, 16);
    member.stored_bytes = Get<uint32_t>(rest, 20);
    member.bytes = Get<uint32_t>(rest, 24);
    member.header_offset = Get<uint32_t>(rest, 42);
    const size_t name = Get<uint16_t>(rest, 28), extra = Get<uint16_t>(rest, 30);
    const size_t comment = Get<uint16_t>(rest, 32);
    if (rest.size() < kDirectoryEntryBytes + name + extra + comment)
      return NoZip("its directory is cut off");
    member.name = std::string(rest.substr(kDirectoryEntryBytes, name));
    SLUICE_RETURN_IF_ERROR(ReadZip64(rest.substr(kDirectoryEntryBytes + name, extra), &member));
    rest.remove_prefix(kDirectoryEntryBytes + name + extra + comment);
    members_.push_back(std::move(member));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ByteStream>> ZipReader::Read(const Member& member) const {
  if (member.flags & kEncrypted)
    return absl::UnimplementedError(absl::StrCat("member ", member.name, " is encrypted"));
  if (member.method != kStored && member.method != kDeflated) {
    return absl::UnimplementedError(absl::StrCat("member ", member.name,
                                                 " is compressed by method ", member.method,
                                                 "; store or deflate it"));
  }
  const uint64_t size = file_->info().identity.size;
  if (member.header_offset > size || size - member.header_offset < kLocalHeaderBytes)
    return NoZip(absl::StrCat("member ", member.name, " lies outside of it"));
  // The local header repeats the name, and may have other extra fields than the directory.
  SLUICE_ASSIGN_OR_RETURN(const std::string header, Bytes(member.header_offset, kLocalHeaderBytes));
  if (Get<uint32_t>(header, 0) != kLocalHeader)
    return NoZip(absl::StrCat("member ", member.name, " has no header"));
  const uint64_t begin = member.header_offset + kLocalHeaderBytes + Get<uint16_t>(header, 26) +
                         Get<uint16_t>(header, 28);
  if (begin > size || member.stored_bytes > size - begin ||
      (member.method == kStored && member.stored_bytes != member.bytes))
    return NoZip(absl::StrCat("member ", member.name, " lies outside of it"));
  return std::make_unique<MemberStream>(member,
                                        FileStream(file_, begin, begin + member.stored_bytes));
}

}  // namespace sluice
