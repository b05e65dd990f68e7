// Unique keys of one sparse table, grouped by shard, and the class that finds them in a batch.
//
// Memory: KeyDeduplicator has buffers that are reused by every call and grow to the largest batch.
//
// Thread safety: a KeySet is immutable once it is filled, and is shared as const. A KeyDeduplicator
// belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/shard_index.h"
#include "common/table/table_layout.h"

namespace sluice {

// The keys of shard s are [offsets[s], offsets[s + 1]).
struct KeySet {
  std::vector<uint64_t> keys;
  std::vector<uint32_t> offsets;  // [num_shards + 1]
};

// INVALID_ARGUMENT unless `table` is a sparse table and the offsets fit its shards and the keys.
absl::Status CheckKeys(const ShardIndex& index, uint32_t table, const KeySet* keys);

class KeyDeduplicator {
 public:
  // `unique` receives the distinct keys of `keys`, grouped by the shards of `table`; index[i]
  // receives the position of keys[i] in it.
  void Run(const TableLayout& table, const uint64_t* keys, size_t n, KeySet* unique,
           uint32_t* index);

 private:
  // Key and number lie side by side, so a lookup touches one cache line. A slot of another round
  // counts as empty, so nothing is cleared between calls. The table is as large as the distinct
  // keys need, which are far fewer than the keys, so that it stays in the cache.
  struct Slot {
    uint64_t key = 0;
    uint32_t id = 0;
    uint32_t round = 0;
  };
  // Numbers the distinct keys by first occurrence; index[i] receives the number of keys[i]. Returns
  // how many distinct keys there are.
  size_t NumberKeys(const uint64_t* keys, size_t n, uint32_t* index);
  // Doubles the table and enters the first `found` keys of unique_ again.
  void Grow(size_t found);

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  uint32_t round_ = 0;
  std::vector<uint64_t> unique_;  // by number
  std::vector<uint32_t> shards_, next_;
};

}  // namespace sluice
