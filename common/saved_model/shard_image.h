// Makes the bytes of a shard's file piece by piece, for a save or for sending the shard elsewhere.
//
// Format: proto/model.proto.
//
// Memory: a cut holds one block and, for a sparse shard, 16 bytes per row.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/table/table_layout.h"

namespace sluice {

// The image of a shard at one moment.
class ShardCut {
 public:
  virtual ~ShardCut() = default;
  // Sets *chunk to the next bytes, about 256 KiB. Returns false at the end. Must not be called
  // again after an error.
  virtual absl::StatusOr<bool> Next(std::string* chunk) = 0;
};

// The rows of a sparse shard at one moment, numbered in any order.
class ShardRows {
 public:
  virtual ~ShardRows() = default;
  virtual uint64_t size() const = 0;  // below 2^32
  // Sets keys[i] to the key of row first + i, for i < n.
  virtual absl::Status ReadKeys(uint64_t first, size_t n, uint64_t* keys) = 0;
  // Copies the weights of row rows[i], as they lie in memory, to `to` + i * stride, for i < n. `to`
  // may have any alignment.
  virtual absl::Status ReadWeights(const uint32_t* rows, size_t n, size_t stride, char* to) = 0;
};

// The cut of a sparse shard. `table` must outlive it. The cut fails with INVALID_ARGUMENT on a key
// that occurs twice or belongs to another shard.
std::unique_ptr<ShardCut> CutOfRows(const TableLayout& table, uint32_t shard,
                                    std::unique_ptr<ShardRows> rows);
// The cut of a dense shard. `elements` holds [table.ShardElements(shard)] values, which must not
// change while the cut lives. `table` must outlive it.
std::unique_ptr<ShardCut> CutOfElements(const TableLayout& table, uint32_t shard,
                                        std::shared_ptr<const float> elements);

}  // namespace sluice
