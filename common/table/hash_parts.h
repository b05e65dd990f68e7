// Maps equal parts of the hash range of sparse keys to the shards of a table.
//
// Part p of n holds the keys with ShardOfKey(key, n) == p. A shard is one of num_shards such parts.
// So the parts of a saved model and the shards of a job overlap in contiguous runs, for any numbers
// of parts and shards.
#pragma once

#include <cstdint>

namespace sluice {

struct ShardSpan {
  uint32_t first = 0, last = 0;  // both included
};

// The shards that can hold keys of part `part` of `parts`, for a table of `num_shards` shards.
// REQUIRES: part < parts; num_shards > 0.
inline ShardSpan ShardsOfPart(uint32_t part, uint32_t parts, uint32_t num_shards) {
  const uint64_t begin = uint64_t{part} * num_shards;
  const uint64_t end = (uint64_t{part} + 1) * num_shards;
  return {static_cast<uint32_t>(begin / parts),
          static_cast<uint32_t>((end + parts - 1) / parts - 1)};
}

}  // namespace sluice
