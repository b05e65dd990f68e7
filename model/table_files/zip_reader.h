// Reads the members of a zip file, such as the arrays of an .npz: stored or deflated, also beyond
// 4 GiB (zip64). Checks sizes and CRC-32 of what it reads.
//
// Errors do not name the file. INVALID_ARGUMENT: it is no zip file, or damaged; UNIMPLEMENTED: it
// is encrypted, or compressed by another method.
//
// Source: PKWARE, APPNOTE.TXT 6.3.
//
// Thread safety: one thread. Several members may be read in turns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/table_files/byte_stream.h"

namespace sluice {

class ZipReader {
 public:
  struct Member {
    std::string name;
    uint16_t method = 0;  // 0: stored; 8: deflated
    uint16_t flags = 0;
    uint32_t crc = 0;
    uint64_t stored_bytes = 0, bytes = 0;
    uint64_t header_offset = 0;
  };

  // Reads the directory at the end of the file.
  static absl::StatusOr<std::unique_ptr<ZipReader>> Open(std::shared_ptr<FileReader> file);

  const std::vector<Member>& members() const { return members_; }
  // The bytes of a member. The read that reaches their end fails when the checksum is wrong.
  absl::StatusOr<std::unique_ptr<ByteStream>> Read(const Member& member) const;

 private:
  explicit ZipReader(std::shared_ptr<FileReader> file) : file_(std::move(file)) {}
  absl::Status ReadDirectory();
  absl::StatusOr<std::string> Bytes(uint64_t offset, size_t n) const;

  const std::shared_ptr<FileReader> file_;
  std::vector<Member> members_;
};

}  // namespace sluice
