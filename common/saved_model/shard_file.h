// One shard file: its name, its bytes, and a reader that checks while it streams.
//
// Format: proto/model.proto. A record is one element of a dense table (f32), or one row of a sparse
// table (key, then weights).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "proto/model.pb.h"

namespace sluice {

// Name within the model's folder.
std::string ShardFileName(const std::string& table, uint32_t shard);
// False when `name` is no shard file of `table`.
bool ParseShardFileName(const std::string& name, const std::string& table, uint32_t* shard);
bool IsShardFile(const std::string& name);

// Magic, length and header: what stands before the body.
std::string EncodeShardFileHeader(const ShardFileHeader& header);

// Elements of a dense table's tensor; DATA_LOSS when the shape cannot be.
absl::StatusOr<uint64_t> CountElements(const TableConfig& table);

// Reads a shard file from front to back, in bounded memory. Every error is DATA_LOSS that names the
// file, but for those of the Env.
class ShardFileReader {
 public:
  // Checks the size, the magic, and that the header fits `table` and the file's size.
  static absl::StatusOr<std::unique_ptr<ShardFileReader>> Open(Env* env, const std::string& dir,
                                                               const TableConfig& table,
                                                               const SavedFile& file);

  const ShardFileHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  size_t record_bytes() const { return record_bytes_; }

  // The next whole records, about max_bytes of them and at least one; empty at the end. What ends
  // the file is returned only when the checksum of the whole file is right.
  absl::StatusOr<std::string> NextRecords(size_t max_bytes);

 private:
  ShardFileReader() = default;
  absl::Status ReadHeader(const TableConfig& table, uint32_t shard);
  absl::Status CheckHeader(const TableConfig& table, uint32_t shard, uint64_t body_bytes);
  absl::StatusOr<std::string> ReadExactly(uint64_t n);
  absl::Status CheckSum() const;
  absl::Status Damaged(absl::string_view what) const;

  Env* env_ = nullptr;  // outlives the reader
  std::string path_;
  uint64_t bytes_ = 0, position_ = 0;
  uint32_t expected_crc_ = 0, crc_ = 0;
  ShardFileHeader header_;
  size_t record_bytes_ = 0;
};

}  // namespace sluice
