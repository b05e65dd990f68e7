// Writes a zip file whose members are stored as they are, front to back, also beyond 4 GiB.
//
// Format: every member has zip64 sizes and its checksum in a data descriptor behind it, so that
// nothing is written twice.
//
// Source: PKWARE, APPNOTE.TXT 6.3.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"

namespace sluice {

class ZipWriter {
 public:
  explicit ZipWriter(std::unique_ptr<NewFile> file);

  // A member is Begin, its bytes in pieces, and End.
  absl::Status Begin(const std::string& name);
  absl::Status Append(absl::string_view bytes);
  absl::Status End();
  // Writes the directory. The file appears under its name. This is the last call.
  absl::Status Finish();

 private:
  struct Member {
    std::string name;
    uint64_t header_offset = 0, bytes = 0;
    uint32_t crc = 0;
  };
  absl::Status Write(absl::string_view bytes);

  const std::unique_ptr<NewFile> file_;
  std::vector<Member> members_;
  uint64_t at_ = 0;
};

}  // namespace sluice
