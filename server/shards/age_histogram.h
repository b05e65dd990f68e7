// Counts the rows of a shard by the schedule step of their last update, so that the shard knows how
// many have expired, swept or not, without looking at each.
//
// A counter stands for the rows of width() steps. So rows that expired less than width() steps ago
// may still count as live.
//
// Thread safety: guarded by the owner's lock (the shard's).
//
// Invariants: every row is in one counter: in expired_ if its interval lies before first_, else in
// that of its interval. Add, Move and Remove are O(1); Advance is O(intervals passed).
//
// Memory: 4 bytes for each of 8 to kMostIntervals intervals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

class AgeHistogram {
 public:
  static constexpr size_t kMostIntervals = 1024;

  // `after_steps`: how old a row becomes (ExpireConfig). 0: rows expire by days alone, so that none
  // does between two calls of Clear.
  explicit AgeHistogram(uint64_t after_steps);

  uint64_t width() const { return uint64_t{1} << shift_; }
  // Forgets all rows. Those whose last update was before schedule step `live_from` have expired.
  void Clear(uint64_t live_from);
  // The same from now on; a `live_from` that is lower than before has no effect.
  void Advance(uint64_t live_from);

  void Add(uint64_t last_seen) { ++*CounterOf(last_seen); }
  // The row counts as updated at `to`. Most updates find a row in the interval of the present step.
  void Move(uint64_t last_seen, uint64_t to) {
    if (last_seen >> shift_ == to >> shift_) return;
    Remove(last_seen);
    Add(to);
  }
  void Remove(uint64_t last_seen) {
    uint32_t* const counter = CounterOf(last_seen);
    // A file may bring rows of steps that are still to come, of which no interval knows.
    if (*counter > 0) --*counter;
  }
  uint64_t expired() const { return expired_; }

 private:
  uint32_t* CounterOf(uint64_t last_seen) {
    const uint64_t interval = last_seen >> shift_;
    if (interval < first_) return &expired_;
    return interval - first_ <= mask_ ? &intervals_[interval & mask_] : &beyond_;
  }

  const int shift_;
  uint64_t first_ = 0;  // the first interval that may have live rows
  uint32_t expired_ = 0, beyond_ = 0;
  std::vector<uint32_t> intervals_;  // from first_ on, in a ring of a power of two
  const uint64_t mask_ = intervals_.size() - 1;
};

}  // namespace sluice
