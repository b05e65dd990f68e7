// Makes the file of a sparse shard in a delta: the rows that have changed, and in its header the
// keys of rows that have gone.
//
// Format: proto/model.proto.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/saved_model/shard_image.h"
#include "common/table/table_layout.h"

namespace sluice {

// Most keys that a file names as gone: what its header has room for.
inline constexpr size_t kMostGoneKeys = 1 << 18;

// The rows of a shard that have changed.
class DeltaRows : public ShardRows {
 public:
  // Appends the keys whose rows have gone, in any order; rows that ReadKeys has given may be among
  // them. Called once, after all keys were read.
  virtual absl::Status ListGone(std::vector<uint64_t>* keys) = 0;
};

// As CutOfRows (shard_image.h). RESOURCE_EXHAUSTED: more than kMostGoneKeys are gone, so that the
// chain needs a new base.
std::unique_ptr<ShardCut> CutOfDelta(const TableLayout& table, uint32_t shard,
                                     std::unique_ptr<DeltaRows> rows);

}  // namespace sluice
