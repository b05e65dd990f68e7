// Which keys of the sparse table a worker keeps in numbered slots, and how old their values are.
// The values lie elsewhere (hot_rows.h).
//
// Age: a row whose pull started when the worker had made p steps is t - p steps old in its step t
// (counted from 0). Invariants: Find gives no slot whose row is older than max_staleness, and all
// slots of a batch are different.
// Order: Find is called once for each step, in the order of the steps; steps run in that order; the
// values that Find misses are written to their slots after the step before has ended and before
// their own runs. So a slot may go to another key, or get a newer value, while batches in flight
// still read it: they run before the write. A key that a batch in flight pulls counts as there, as
// old as that pull: its value is written before the next batch runs.
// Eviction: a clock with a second chance for rows that were used again; rows too old go first.
// Memory: 32 bytes a slot and 4 to 8 of the index, grown with use up to the capacity; a steady
// state allocates nothing. Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/parameter_client.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class HotRowCache {
 public:
  // At least 1 row; slots are numbered below `capacity`.
  HotRowCache(size_t capacity, uint64_t max_staleness);

  // Where the rows of one batch are.
  struct Rows {
    std::vector<uint32_t> slots;          // [keys]
    KeySet missing;                       // to be pulled, grouped by shard as the keys are
    std::vector<uint32_t> missing_slots;  // [missing.keys]
    HotRowUse use;
  };
  // Of the different `keys` that step `step` uses, whose pull starts when `steps_done` steps are.
  // REQUIRES: at most `capacity` keys; steps_done <= step; neither is less than in the call before.
  void Find(const KeySet& keys, uint64_t step, uint64_t steps_done, Rows* found);

  // Rows whose pull started before `steps_done` steps were made are not used again.
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

  // The slots of keys that are there, and in `found` and positions_ those that must be pulled.
  void LookUp(const KeySet& keys, uint64_t step, Rows* found);
  // Slots for what LookUp found missing.
  void Assign(uint64_t step, uint64_t steps_done, Rows* found);
  size_t BucketOf(uint64_t key) const;
  uint32_t SlotOf(uint64_t key) const;  // kNone: not there
  bool Young(const Slot& slot, uint64_t step) const {
    return slot.pulled >= oldest_ && step - slot.pulled <= max_staleness_;
  }
  void Prefetch(const KeySet& keys, size_t i) const;
  // A slot that step `step` does not use, out of the index.
  uint32_t TakeSlot(uint64_t step);
  uint32_t AddSlot();
  void Link(uint32_t slot);
  void Unlink(uint32_t slot);

  const size_t capacity_;
  const uint64_t max_staleness_;
  uint64_t oldest_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint32_t> buckets_;    // first slot of the chain; a power of two, at least the slots
  uint32_t hand_ = 0;                // of the clock
  std::vector<uint32_t> positions_;  // in a Find: of the missing keys
};

}  // namespace sluice
