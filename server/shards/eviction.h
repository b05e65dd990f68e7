// The order in which rows leave a sparse shard that is above its limit.
//
// A row leaves before another one if its score is lower; among equal scores, if its last update is
// older; then by a hash of its key. So the rows that go depend on the rows alone, and not on their
// places in memory.
//
// Thread safety: pure functions; the order is immutable.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "proto/config.pb.h"

namespace sluice {

// What the order needs to know of a row.
struct RowFacts {
  uint64_t key;
  uint32_t count;        // updates
  uint64_t last_seen;    // schedule step of the last one
  const float* weights;  // [dim]
};

struct EvictionCandidate {
  double score;
  uint64_t last_seen;
  uint64_t mixed_key;
  uint32_t row;

  bool operator<(const EvictionCandidate& other) const;
};

class EvictionOrder {
 public:
  // `days_since(schedule step)`: whole days from that step's day to the present one. Only asked
  // with half_life_days; null: 0 days.
  EvictionOrder(const EvictConfig& config, uint32_t dim,
                std::function<uint32_t(uint64_t)> days_since);

  EvictionCandidate Of(const RowFacts& row, uint32_t id) const;

 private:
  double Score(const RowFacts& row) const;

  const EvictConfig config_;
  const uint32_t dim_;
  const std::function<uint32_t(uint64_t)> days_since_;
};

// The rows that a shard has after an eviction: 95 % of its limit.
inline uint64_t RowsAfterEviction(uint64_t limit) { return limit - limit / 20; }

// Moves the `n` rows that leave first to the front, in any order. O(rows).
// REQUIRES: n <= rows->size().
void MoveFirstToLeave(size_t n, std::vector<EvictionCandidate>* rows);

}  // namespace sluice
