// The days of a shard's data: which schedule step each began with. A row has the day of its last
// update, which follows from its last_seen.
//
// Thread safety: guarded by the owner's lock (the shard's).
//
// Memory: 16 bytes a day, at most kMost of them. A year has 365, so the oldest are only dropped
// when nothing asks for them any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/model.pb.h"

namespace sluice {

class RowDays {
 public:
  static constexpr size_t kMost = 4096;

  // From schedule step `step` on, the day is `day`, counted from 1970-01-01. Without effect unless
  // the day is later than today(), and its step not before that of today().
  void Begin(int32_t day, uint64_t step);
  bool empty() const { return days_.empty(); }
  // REQUIRES: !empty().
  int32_t today() const { return days_.back().day; }
  // The day of a schedule step. Steps before the first known day count as of that day: no one knows
  // theirs.
  // REQUIRES: !empty().
  int32_t DayOf(uint64_t step) const;
  // The first schedule step of `day` or a later one; 0 when the first known day is not earlier than
  // `day`, UINT64_MAX when today() is.
  uint64_t FirstStepSince(int32_t day) const;
  // Forgets days that are more than `days` before today(). The last of them stays, so that no step
  // counts as of a later day than before.
  void Prune(uint32_t days);

  void Write(ShardFacts* facts) const;
  void Restore(const ShardFacts& facts);

 private:
  struct Start {
    int32_t day;
    uint64_t step;
  };
  std::vector<Start> days_;  // ascending by day; a day without a step begins with the next one
};

}  // namespace sluice
