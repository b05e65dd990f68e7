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
#include "common/saved_model/shard_image.h"

namespace sluice {

class RowSpool {
 public:
  // Where the import puts the file. The folder of the output (kOutput) must have room for the rows
  // twice, because the output's own files follow. A temporary folder in memory takes at most
  // kMostMemoryBytes.
  enum class Folder { kOutput, kTemporary };
  // The file is on the disk of the local folder `dir`, which exists. All records have
  // `record_bytes`; about `expected_bytes` will be added. RESOURCE_EXHAUSTED: there is no room for
  // them.
  static absl::StatusOr<std::unique_ptr<RowSpool>> Create(const std::string& dir, Folder folder,
                                                          uint32_t parts, size_t record_bytes,
                                                          uint64_t expected_bytes);
  static constexpr uint64_t kMostMemoryBytes = 256 << 20;
  ~RowSpool();
  RowSpool(const RowSpool&) = delete;
  RowSpool& operator=(const RowSpool&) = delete;

  // The place of a new record of the part, for record_bytes, until the next call.
  absl::StatusOr<char*> Add(uint32_t part);
  // Bytes of the part's records.
  uint64_t PartBytes(uint32_t part) const;
  // Replaces *records by all of the part.
  absl::Status Read(uint32_t part, std::string* records) const;
  // Copies the records [first, first + n) of the part.
  absl::Status ReadRecords(uint32_t part, uint64_t first, size_t n, char* to) const;
  size_t record_bytes() const { return record_bytes_; }

 private:
  struct Part {
    std::vector<char> buffer;
    size_t filled = 0;
    std::vector<uint64_t> written;  // offsets of full buffers in the file
  };
  RowSpool(int fd, std::string dir, uint32_t parts, size_t record_bytes);
  absl::Status Flush(Part* part);
  absl::Status ReadFile(uint64_t offset, size_t n, char* to) const;
  absl::Status Error(const char* what) const;

  const int fd_;
  const std::string dir_;  // for messages
  const size_t record_bytes_;
  const size_t buffer_bytes_;  // whole records
  std::vector<Part> parts_;
  uint64_t end_ = 0;  // of the file
};

// Rows of a part that is too large for memory: keys are read in order, and each row by itself.
class SpooledRows : public ShardRows {
 public:
  // `spool` outlives this.
  SpooledRows(const RowSpool* spool, uint32_t part) : spool_(*spool), part_(part) {}
  uint64_t size() const override { return spool_.PartBytes(part_) / spool_.record_bytes(); }
  absl::StatusOr<size_t> ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                  uint32_t* rows) override;
  absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) override;

 private:
  const RowSpool& spool_;
  const uint32_t part_;
  std::string records_;
};

}  // namespace sluice
