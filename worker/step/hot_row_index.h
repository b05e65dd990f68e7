// Tracks which keys of one sparse table a worker keeps in numbered slots, and how old they are.
//
// hot_row_cache.h keeps the values.
//
// Age: a row whose pull started after the worker's first p steps is t - p steps old in its step t
// (from 0).
//
// Invariants: Find returns no slot whose row is older than max_staleness. All slots of a batch are
// different.
//
// Order: Find is called once for each step, in the order of the steps, and steps run in that order.
// The values that Find misses are written to their slots after the previous step has ended and
// before their own step runs. So a slot may go to another key, or get a newer value, while batches
// in flight still read it: they run before the write. A key being pulled by a batch in flight
// counts as present, as old as that pull: its value is written before the next batch runs.
//
// A row that its pserver has dropped (expired, evicted, deleted) is used until its next pull,
// max_staleness steps later at most: only the reply to a pull says anything about a row. The reply
// has the row's present value: its initial value, or that of a new row that a push has begun
// meanwhile. It replaces the cached one.
//
// Eviction: a clock with a second chance for rows that were used again. Rows that are too old go
// first.
//
// Memory: 32 bytes per slot and 4 to 8 bytes of index; grows with use up to the capacity. A steady
// state allocates nothing.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/key_set.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class HotRowIndex {
 public:
  // `capacity` is at least 1 row; slots are numbered below it.
  HotRowIndex(size_t capacity, uint64_t max_staleness);

  // The slots of the rows of one batch.
  struct Rows {
    std::vector<uint32_t> slots;          // [keys]
    KeySet missing;                       // to be pulled, grouped by shard as the keys are
    std::vector<uint32_t> missing_slots;  // [missing.keys]
    HotRowUse use;
  };
  // Finds or assigns the slots of `keys` for step `step`, whose pull starts when `steps_done` steps
  // are done.
  // REQUIRES: `keys` are distinct and at most `capacity`; steps_done <= step; neither is less than
  // in the previous call.
  void Find(const KeySet& keys, uint64_t step, uint64_t steps_done, Rows* found);

  // Ignores from now on all rows whose pull started before `steps_done` steps were done.
  void Forget(uint64_t steps_done) { oldest_ = steps_done; }

  size_t capacity() const { return capacity_; }
  size_t size() const { return slots_.size(); }  // slots in use are below this

 private:
  struct Slot {
    uint64_t key = 0;
    uint64_t pulled = 0;     // steps done when its pull started
    uint64_t needed_by = 0;  // 1 + the last step that uses it
    uint32_t next = 0;       // in the chain of its bucket
    bool again = false;      // used again since the hand passed
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  // Finds the slots of keys in the cache; lists those that must be pulled in `found` and
  // positions_.
  void LookUp(const KeySet& keys, uint64_t step, Rows* found);
  // Assigns slots to the keys that LookUp found missing.
  void Assign(uint64_t step, uint64_t steps_done, Rows* found);
  size_t BucketOf(uint64_t key) const;
  uint32_t SlotOf(uint64_t key) const;  // kNone: not in the cache
  bool Young(const Slot& slot, uint64_t step) const {
    return slot.pulled >= oldest_ && step - slot.pulled <= max_staleness_;
  }
  void Prefetch(const KeySet& keys, size_t i) const;
  // Takes a slot that step `step` does not use out of the index, or adds one.
  uint32_t TakeSlot(uint64_t step);
  uint32_t AddSlot();
  void Link(uint32_t slot);
  void Unlink(uint32_t slot);

  const size_t capacity_;
  const uint64_t max_staleness_;
  uint64_t oldest_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint32_t> buckets_;    // first slot of each chain; a power of two, at least the slots
  uint32_t hand_ = 0;                // of the clock
  std::vector<uint32_t> positions_;  // of the missing keys, during a Find
};

}  // namespace sluice
