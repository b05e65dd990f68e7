#include "model/table_files/zip_writer.h"

#include <zlib.h>

#include <utility>

#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr uint16_t kVersion = 45;            // zip64
constexpr uint16_t kSizesBehind = 1u << 3;   // sizes and checksum follow the bytes
constexpr uint16_t kDosDate = (1 << 5) | 1;  // 1980-01-01: the same bytes at any time
constexpr uint16_t kZip64Field = 1;

template <typename... Numbers>
std::string Packed(Numbers... numbers) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&numbers), sizeof(numbers)), ...);
  return bytes;
}

}  // namespace

ZipWriter::ZipWriter(std::unique_ptr<NewFile> file) : file_(std::move(file)) {}

absl::Status ZipWriter::Write(absl::string_view bytes) {
  at_ += bytes.size();
  return file_->Append(bytes);
}

absl::Status ZipWriter::Begin(const std::string& name) {
  members_.push_back({name, at_});
  const uint16_t name_bytes = static_cast<uint16_t>(name.size());
  return Write(Packed(uint32_t{0x04034b50}, kVersion, kSizesBehind, uint16_t{0}, uint16_t{0},
                      kDosDate, uint32_t{0}, UINT32_MAX, UINT32_MAX, name_bytes, uint16_t{20}) +
               name + Packed(kZip64Field, uint16_t{16}, uint64_t{0}, uint64_t{0}));
}

absl::Status ZipWriter::Append(absl::string_view bytes) {
  Member& member = members_.back();
  member.bytes += bytes.size();
  member.crc = static_cast<uint32_t>(
      crc32_z(member.crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  return Write(bytes);
}

absl::Status ZipWriter::End() {
  const Member& member = members_.back();
  return Write(Packed(uint32_t{0x08074b50}, member.crc, member.bytes, member.bytes));
}

absl::Status ZipWriter::Finish() {
  const uint64_t begin = at_;
  for (const Member& member : members_) {
    const uint16_t name_bytes = static_cast<uint16_t>(member.name.size());
    SLUICE_RETURN_IF_ERROR(
        Write(Packed(uint32_t{0x02014b50}, kVersion, kVersion, kSizesBehind, uint16_t{0},
                     uint16_t{0}, kDosDate, member.crc, UINT32_MAX, UINT32_MAX, name_bytes,
                     uint16_t{28}, uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0}, UINT32_MAX) +
              member.name +
              Packed(kZip64Field, uint16_t{24}, member.bytes, member.bytes, member.header_offset)));
  }
  const uint64_t end = at_, count = members_.size();
  SLUICE_RETURN_IF_ERROR(Write(Packed(uint32_t{0x06064b50}, uint64_t{44}, kVersion, kVersion,
                                      uint32_t{0}, uint32_t{0}, count, count, end - begin, begin) +
                               Packed(uint32_t{0x07064b50}, uint32_t{0}, end, uint32_t{1}) +
                               Packed(uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, UINT16_MAX,
                                      UINT16_MAX, UINT32_MAX, UINT32_MAX, uint16_t{0})));
  return file_->Finish();
}

}  // namespace sluice
