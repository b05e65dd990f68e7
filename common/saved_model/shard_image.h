// Makes the bytes of a shard's file piece by piece, for a model, a checkpoint, or for sending the
// shard elsewhere.
//
// Format: proto/model.proto. A model has values alone; a checkpoint also has the shard's
// facts and state.
//
// Memory: a cut holds one block and, for a sparse shard, 16 bytes per row.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/table/table_layout.h"
#include "proto/model.pb.h"

namespace sluice {

// The runs of the file of a sparse shard whose records have so many bytes, of a table of that many
// shards. Run r of shard s has the keys whose ShardOfKey(key, num_shards * runs) is s * runs + r,
// in ascending order.
uint32_t RunsOfShardFile(uint32_t num_shards, uint64_t bytes);

// The image of a shard at one moment.
class ShardCut {
 public:
  virtual ~ShardCut() = default;
  // Sets *chunk to the next bytes, about 256 KiB. Returns false at the end. Must not be called
  // again after an error. OUT_OF_RANGE: a value is NaN or infinite (common/table/not_finite.h), so
  // that no file with it can replace a good one.
  virtual absl::StatusOr<bool> Next(std::string* chunk) = 0;
};

// The contents of a cut in addition to the values.
struct CutState {
  // Present in a checkpoint, absent in a model.
  std::optional<ShardFacts> facts;
  // Optimizer state of each row or dense element; 0 in a model.
  uint32_t state_floats = 0;
};

// Bytes of last_seen and count, which a row of a checkpoint has between its key and its weights.
inline constexpr size_t kRowHistoryBytes = sizeof(uint64_t) + sizeof(uint32_t);

// The rows of a sparse shard at one moment, numbered in any order.
class ShardRows {
 public:
  virtual ~ShardRows() = default;
  virtual uint64_t size() const = 0;  // numbers of rows; below 2^32. Some may belong to no row.
  // Reads the keys of the rows first .. first + n - 1. A number without a row is left out: for
  // i < the count that is returned, keys[i] is the key of row rows[i].
  virtual absl::StatusOr<size_t> ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                          uint32_t* rows) = 0;
  // Adds to the facts of a checkpoint what was learned from the keys. Called once, after all of
  // them were read.
  virtual void AddFacts(ShardFacts*) {}
  // Copies what follows the key in the record of row rows[i] to `to` + i * stride, for i < n:
  // weights, as they lie in memory; in a checkpoint last_seen, count, weights and state. Each row
  // is read once. `to` may have any alignment.
  virtual absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) = 0;
};

// The cut of a sparse shard. `table` must outlive it. The cut fails with INVALID_ARGUMENT on a key
// that occurs twice or belongs to another shard.
std::unique_ptr<ShardCut> CutOfRows(const TableLayout& table, uint32_t shard,
                                    std::unique_ptr<ShardRows> rows, CutState state = {});
// The cut of a dense shard. arrays[0] has its weights, arrays[1 + k] its state array k of
// state.state_floats; each is [table.ShardElements(shard)], and must not change while the cut
// lives. `table` must outlive it.
std::unique_ptr<ShardCut> CutOfElements(const TableLayout& table, uint32_t shard,
                                        std::vector<std::shared_ptr<const float>> arrays,
                                        CutState state = {});

}  // namespace sluice
