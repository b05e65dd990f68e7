// Fills a new shard from the image of another one, piece by piece as ShardCut gives them.
//
// Format: proto/model.proto; the image is the same as in a checkpoint's file.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/model.pb.h"
#include "server/shards/shard.h"

namespace sluice {

class ShardImageReader {
 public:
  // `shard` is new, and outlives the reader.
  explicit ShardImageReader(Shard* shard) : shard_(shard) {}

  // Takes the next piece. INVALID_ARGUMENT: the image is not of this shard. DATA_LOSS: it was
  // damaged in transit. Throws NoRoom and bad_alloc as Shard::RestoreRows.
  absl::Status Add(const std::string& piece);
  // True when the image is complete and the shard has its values, state and facts.
  bool done() const { return stage_ == kDone; }

 private:
  absl::Status TakeHeader(const std::string& piece);
  absl::Status TakeBlock(const std::string& piece);
  absl::Status TakeIndex(const std::string& piece);
  absl::Status Wrong(absl::string_view what) const;

  Shard* const shard_;
  enum { kHeader, kBlocks, kDone } stage_ = kHeader;
  ShardFileHeader header_;
  size_t record_bytes_ = 0;
  uint64_t records_ = 0, taken_ = 0;  // of all blocks
  ShardFileIndex seen_;               // as the blocks came
  std::vector<uint64_t> keys_;
  std::vector<const char*> values_;
  std::vector<float> elements_;  // aligned, unlike the bytes of a piece
};

}  // namespace sluice
