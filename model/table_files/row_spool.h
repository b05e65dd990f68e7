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
  // Replaces these records.
  absl::Status WriteRecords(uint32_t part, uint64_t first, size_t n, const char* from);
  size_t record_bytes() const { return record_bytes_; }
  uint32_t parts() const { return static_cast<uint32_t>(parts_.size()); }
  // How often the file was read.
  uint64_t ReadsForTest() const { return reads_; }

 private:
  struct Part {
    std::vector<char> buffer;
    size_t filled = 0;
    std::vector<uint64_t> written;  // offsets of full buffers in the file
  };
  RowSpool(int fd, std::string dir, uint32_t parts, size_t record_bytes);
  absl::Status Flush(Part* part);
  absl::Status ReadFile(uint64_t offset, size_t n, char* to) const;
  absl::Status WriteFile(uint64_t offset, size_t n, const char* from);
  // Calls `in_file` and `in_memory` for the pieces of the records, with their place.
  template <typename InFile, typename InMemory>
  absl::Status VisitPieces(uint32_t part, uint64_t first, size_t n, const InFile& in_file,
                           const InMemory& in_memory) const;
  absl::Status Error(const char* what) const;

  const int fd_;
  const std::string dir_;  // for messages
  const size_t record_bytes_;
  const size_t buffer_bytes_;  // whole records
  std::vector<Part> parts_;
  uint64_t end_ = 0;  // of the file
  mutable uint64_t reads_ = 0;
};

// Rows of a part that is too large for memory, where part p of the spool is shard p of a table.
//
// The rows are first sorted in stretches that fit into memory, each in the order of the shard's
// file. So rows that are read in that order come one after the other in each stretch, and are read
// in pieces of many.
//
// Memory: twice a stretch while they are sorted; then a piece of each stretch, 16 MiB together or
// 64 KiB each.
class SpooledRows : public ShardRows {
 public:
  // `spool` outlives the rows.
  static absl::StatusOr<std::unique_ptr<SpooledRows>> Create(
      RowSpool* spool, uint32_t part, uint64_t stretch_bytes = kStretchBytes);
  static constexpr uint64_t kStretchBytes = 16 << 20;

  uint64_t size() const override { return spool_.PartBytes(part_) / spool_.record_bytes(); }
  absl::StatusOr<size_t> ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                  uint32_t* rows) override;
  absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) override;

 private:
  // The bytes of the stretch that were read last.
  struct Piece {
    uint64_t first = 0, end = 0;  // rows
    std::string records;
  };
  SpooledRows(RowSpool* spool, uint32_t part, uint64_t stretch_bytes);
  absl::Status SortStretches();
  absl::Status ReadPiece(uint64_t row, Piece* piece) const;

  RowSpool& spool_;
  const uint32_t part_;
  const uint64_t stretch_rows_;
  std::vector<Piece> pieces_;  // of the stretches
  std::string records_;
};

}  // namespace sluice
