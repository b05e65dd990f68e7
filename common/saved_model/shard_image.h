// A shard as the bytes of its file, made piece by piece: what a save writes, and what else sends a
// shard away.
//
// Format: proto/model.proto. Memory: of a cut, a block and, sparse, 16 bytes a row. Thread safety:
// one thread.
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
  // The next bytes, about 256 KiB; false at the end. Nothing may follow an error.
  virtual absl::StatusOr<bool> Next(std::string* chunk) = 0;
};

// The rows of a sparse shard at one moment, by number, in any order.
class ShardRows {
 public:
  virtual ~ShardRows() = default;
  virtual uint64_t size() const = 0;  // below 2^32
  // keys[i] = key of row first + i.
  virtual absl::Status ReadKeys(uint64_t first, size_t n, uint64_t* keys) = 0;
  // Weights of rows[i] as they are in memory, at to + i * stride. Unaligned.
  virtual absl::Status ReadWeights(const uint32_t* rows, size_t n, size_t stride, char* to) = 0;
};

// `table` outlives the cut. A key that is there twice, or is not the shard's, is INVALID_ARGUMENT.
std::unique_ptr<ShardCut> CutOfRows(const TableLayout& table, uint32_t shard,
                                    std::unique_ptr<ShardRows> rows);
// elements: [table.ShardElements(shard)], which stay as they are.
std::unique_ptr<ShardCut> CutOfElements(const TableLayout& table, uint32_t shard,
                                        std::shared_ptr<const float> elements);

}  // namespace sluice
