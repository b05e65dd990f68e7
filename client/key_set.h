// Unique keys of one sparse table, grouped by shard.
//
// Thread safety: immutable once it is filled; it is shared as const.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/shard_index.h"

namespace sluice {

// The keys of shard s are [offsets[s], offsets[s + 1]).
struct KeySet {
  std::vector<uint64_t> keys;
  std::vector<uint32_t> offsets;  // [num_shards + 1]
};

// INVALID_ARGUMENT unless `table` is a sparse table and the offsets fit its shards and the keys.
absl::Status CheckKeys(const ShardIndex& index, uint32_t table, const KeySet* keys);

}  // namespace sluice
