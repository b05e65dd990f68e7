// Reads a shard file, whole or in runs, and checks all that it returns.
//
// Format: proto/model.proto. A record is one element of a dense table (f32), or one row of a sparse
// table (key, then weights). Errors: DATA_LOSS names the file and, where there is one, the place;
// those of the Env keep their code and get the place, too. Thread safety: a ShardFileReader is
// constant once it is open; a RunReader is its thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "proto/model.pb.h"

namespace sluice {

class ShardFileReader {
 public:
  // Reads header and index, and checks that they fit `table`, the file's size and the checksum of
  // the whole file in the manifest. `env` outlives the reader. Memory: some bytes for each block of
  // 256 KiB.
  static absl::StatusOr<std::unique_ptr<ShardFileReader>> Open(Env* env, const std::string& dir,
                                                               const TableConfig& table,
                                                               const SavedFile& file);

  const ShardFileHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  bool sparse() const { return header_.kind() == TableConfig::SPARSE; }
  size_t record_bytes() const { return record_bytes_; }
  uint64_t records() const { return sparse() ? header_.rows() : header_.elements(); }

  // Run r of a sparse file holds the keys of part first_part() + r of parts() of the hash range.
  uint32_t runs() const { return static_cast<uint32_t>(first_block_.size()) - 1; }
  uint32_t parts() const { return parts_; }
  uint32_t first_part() const { return header_.shard() * runs(); }
  uint64_t RunBytes(uint32_t run) const;
  // What Open has read.
  uint64_t overhead_bytes() const { return overhead_bytes_; }

 private:
  friend class RunReader;
  struct Block {
    uint64_t offset;
    uint64_t bytes;
    uint32_t crc;
  };

  ShardFileReader() = default;
  absl::StatusOr<std::string> ReadExactly(uint64_t offset, uint64_t n) const;
  absl::Status ReadHeader(const TableConfig& table, uint32_t shard);
  absl::Status CheckHeader(const TableConfig& table, uint32_t shard);
  // Version 1: the body is one block.
  absl::Status MakeOneBlock(uint32_t file_crc);
  absl::Status ReadIndex(uint32_t file_crc);
  absl::Status PlaceBlocks(const ShardFileIndex& index, uint64_t index_offset);
  absl::Status Damaged(absl::string_view what) const;

  Env* env_ = nullptr;
  std::string path_;
  uint64_t bytes_ = 0;
  bool indexed_ = false;
  uint64_t body_offset_ = 0;
  uint32_t front_crc_ = 0;  // of all before the body
  uint64_t overhead_bytes_ = 0;
  ShardFileHeader header_;
  size_t record_bytes_ = 0;
  uint32_t parts_ = 1;
  std::vector<Block> blocks_;
  std::vector<uint32_t> first_block_;  // [runs + 1]
};

// The records of some runs of a file, in their order.
class RunReader {
 public:
  // Runs [begin, end); the file outlives it.
  RunReader(const ShardFileReader* file, uint32_t begin, uint32_t end);

  // The next whole records, all of one block, at most max_bytes of them but at least one; empty at
  // the end. What ends a block is returned only when the block's checksum is right. The keys of a
  // run ascend and are the run's.
  absl::StatusOr<std::string> Next(size_t max_bytes);

 private:
  absl::Status CheckKeys(const std::string& records);

  const ShardFileReader* const file_;
  const uint32_t end_block_;
  uint32_t run_, block_;
  uint64_t done_ = 0;  // bytes of the block
  uint32_t crc_ = 0;   // of them
  bool has_last_ = false;
  uint64_t last_key_ = 0;  // of the run
};

}  // namespace sluice
