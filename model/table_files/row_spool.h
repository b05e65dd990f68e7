// Keeps rows in a file without a name, divided into parts, until they are read again part by part.
// Nothing of it is left when the process ends, however it ends.
//
// Memory: one buffer a part, 64 MiB at most together, and 8 bytes for each buffer that was written.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

class RowSpool {
 public:
  // The file is on the disk of the local folder `dir`, which exists. All records have
  // `record_bytes`.
  static absl::StatusOr<std::unique_ptr<RowSpool>> Create(const std::string& dir, uint32_t parts,
                                                          size_t record_bytes);
  ~RowSpool();
  RowSpool(const RowSpool&) = delete;
  RowSpool& operator=(const RowSpool&) = delete;

  // The place of a new record of the part, for record_bytes, until the next call.
  absl::StatusOr<char*> Add(uint32_t part);
  // Replaces *records by all of the part.
  absl::Status Read(uint32_t part, std::string* records) const;

 private:
  struct Part {
    std::vector<char> buffer;
    size_t filled = 0;
    std::vector<uint64_t> written;  // offsets of full buffers in the file
  };
  RowSpool(int fd, std::string dir, uint32_t parts, size_t record_bytes);
  absl::Status Flush(Part* part);
  absl::Status Error(const char* what) const;

  const int fd_;
  const std::string dir_;  // for messages
  const size_t record_bytes_;
  const size_t buffer_bytes_;  // whole records
  std::vector<Part> parts_;
  uint64_t end_ = 0;  // of the file
};

}  // namespace sluice
