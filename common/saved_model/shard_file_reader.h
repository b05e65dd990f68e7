// Reads a shard file, whole or in runs, and checks everything that it returns.
//
// A record is one element of a dense table (f32), or one row of a sparse table (key, then weights).
// In a checkpoint a dense file has the records of the weights, then the records of each state
// array; the row of a sparse table is key, last_seen, count, weights and state. DATA_LOSS names the
// file and, where there is one, the place. Errors of the Env keep their code; the place is added to
// their message.
//
// Format: proto/model.proto.
//
// Thread safety: a ShardFileReader is constant once it is open. A RunReader belongs to one thread.
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
  // Reads the header and the index, and checks that they fit `table`, the file's size and the
  // manifest's checksum of the whole file. `env` must outlive the reader, which keeps a few bytes
  // for each block of 256 KiB.
  static absl::StatusOr<std::unique_ptr<ShardFileReader>> Open(Env* env, const std::string& dir,
                                                               const TableConfig& table,
                                                               const SavedFile& file);

  const ShardFileHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  bool sparse() const { return header_.kind() == TableConfig::SPARSE; }
  // The rows, or the elements of the weights.
  uint64_t values() const { return sparse() ? header_.rows() : header_.elements(); }

  // The file is of a checkpoint: it has the shard's facts and its state.
  bool has_state() const { return header_.has_facts(); }
  size_t record_bytes() const { return record_bytes_; }
  uint64_t records() const {
    return sparse() ? header_.rows() : header_.elements() * (1 + header_.state_floats());
  }
  // Where the weights begin in the record of a row.
  size_t weights_offset() const { return weights_offset_; }

  // Run r of a sparse file holds the keys of part first_part() + r of parts() of the hash range.
  uint32_t runs() const { return static_cast<uint32_t>(first_block_.size()) - 1; }
  uint32_t parts() const { return parts_; }
  uint32_t first_part() const { return header_.shard() * runs(); }
  uint64_t RunBytes(uint32_t run) const;
  // The number of bytes that Open has read.
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
  // In version 1 the body is one block.
  absl::Status MakeOneBlock(uint32_t file_crc);
  absl::Status ReadIndex(uint32_t file_crc);
  absl::Status PlaceBlocks(const ShardFileIndex& index, uint64_t index_offset);
  absl::Status Damaged(absl::string_view what) const;

  Env* env_ = nullptr;
  std::string path_;
  uint64_t bytes_ = 0;
  bool indexed_ = false;
  uint64_t body_offset_ = 0;
  uint32_t front_crc_ = 0;  // covers everything before the body
  uint64_t overhead_bytes_ = 0;
  ShardFileHeader header_;
  size_t record_bytes_ = 0, weights_offset_ = 0;
  uint32_t parts_ = 1;
  std::vector<Block> blocks_;
  std::vector<uint32_t> first_block_;  // [runs + 1]
};

// Reads the records of some runs of a file, in their order.
class RunReader {
 public:
  // Reads runs [begin, end). `file` must outlive the reader.
  RunReader(const ShardFileReader* file, uint32_t begin, uint32_t end);

  // The next whole records, all from one block: at most max_bytes of them, but at least one; empty
  // at the end. The last records of a block are returned only when the block's checksum is right.
  // Keys are checked: they ascend within a run and belong to it.
  absl::StatusOr<std::string> Next(size_t max_bytes);

 private:
  absl::Status CheckKeys(const std::string& records);

  const ShardFileReader* const file_;
  const uint32_t end_block_;
  uint32_t run_, block_;
  uint64_t done_ = 0;      // bytes of the block that have been read
  uint32_t crc_ = 0;       // of those bytes
  bool has_last_ = false;  // last_key_ is set
  uint64_t last_key_ = 0;  // the last key of the run so far
};

// The same for values alone, also from a checkpoint's file: a record is an element of the weights
// (f32), or key and weights of a row.
class ValueReader {
 public:
  ValueReader(const ShardFileReader* file, uint32_t begin, uint32_t end);
  size_t record_bytes() const { return record_bytes_; }
  // As RunReader::Next. State is also read, and its checksums are checked.
  absl::StatusOr<std::string> Next(size_t max_bytes);

 private:
  const ShardFileReader* const file_;
  const size_t record_bytes_;
  RunReader runs_;
  uint64_t left_;  // dense: bytes of weights that are still to come
};

}  // namespace sluice
