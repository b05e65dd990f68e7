#include "worker/step/hot_row_index.h"

#include <algorithm>

#include "common/base/mix_hash.h"

namespace sluice {
namespace {

// Distance, in keys, from a lookup to the prefetch of a later key's bucket and of its first slot.
constexpr size_t kBucketAhead = 24, kSlotAhead = 12;
// Slots searched for a row that is too old, before the memory grows.
constexpr size_t kLooks = 8;
constexpr size_t kFirstBuckets = 1024;

}  // namespace

HotRowIndex::HotRowIndex(size_t capacity, uint64_t max_staleness)
    : capacity_(capacity), max_staleness_(max_staleness), buckets_(kFirstBuckets, kNone) {}

size_t HotRowIndex::BucketOf(uint64_t key) const { return MixHash(key) & (buckets_.size() - 1); }

uint32_t HotRowIndex::SlotOf(uint64_t key) const {
  uint32_t at = buckets_[BucketOf(key)];
  while (at != kNone && slots_[at].key != key) at = slots_[at].next;
  return at;
}

void HotRowIndex::Prefetch(const KeySet& keys, size_t i) const {
  const size_t n = keys.keys.size();
  if (i + kBucketAhead < n) __builtin_prefetch(&buckets_[BucketOf(keys.keys[i + kBucketAhead])]);
  if (i + kSlotAhead >= n) return;
  const uint32_t first = buckets_[BucketOf(keys.keys[i + kSlotAhead])];
  if (first != kNone) __builtin_prefetch(&slots_[first], 1);
}

void HotRowIndex::Find(const KeySet& keys, uint64_t step, uint64_t steps_done, Rows* found) {
  found->use.Clear();
  // Keys already in the cache come first, so that no key of this batch takes the slot of another.
  LookUp(keys, step, found);
  Assign(step, steps_done, found);
}

void HotRowIndex::LookUp(const KeySet& keys, uint64_t step, Rows* found) {
  found->slots.resize(keys.keys.size());
  found->missing.keys.clear();
  found->missing.offsets.assign(1, 0);
  positions_.clear();
  uint64_t hits = 0, sum = 0, oldest = 0;
  for (size_t shard = 0; shard + 1 < keys.offsets.size(); ++shard) {
    for (uint32_t i = keys.offsets[shard]; i < keys.offsets[shard + 1]; ++i) {
      Prefetch(keys, i);
      const uint32_t at = found->slots[i] = SlotOf(keys.keys[i]);
      if (at != kNone) {
        Slot& slot = slots_[at];
        // One more than the step: 0 means that no step needs the slot.
        slot.needed_by = step + 1;
        slot.again = true;
        // A row that is too old keeps its slot, and is pulled into it.
        if (Young(slot, step)) {
          const uint64_t age = step - slot.pulled;
          ++hits;
          sum += age;
          oldest = std::max(oldest, age);
          continue;
        }
      }
      found->missing.keys.push_back(keys.keys[i]);
      positions_.push_back(i);
    }
    found->missing.offsets.push_back(static_cast<uint32_t>(found->missing.keys.size()));
  }
  found->use.set_hits(hits);
  found->use.set_staleness_sum(sum);
  found->use.set_staleness_max(oldest);
}

void HotRowIndex::Assign(uint64_t step, uint64_t steps_done, Rows* found) {
  const size_t misses = positions_.size();
  found->missing_slots.resize(misses);
  for (size_t m = 0; m < misses; ++m) {
    uint32_t& at = found->slots[positions_[m]];
    if (at == kNone) {
      at = TakeSlot(step);
      Slot& slot = slots_[at];
      slot.key = found->missing.keys[m];
      slot.needed_by = step + 1;
      slot.again = false;
      Link(at);
    }
    // The answer has at least the updates of the steps done by now. It may lack those of later
    // steps, so the row counts as pulled now.
    slots_[at].pulled = steps_done;
    found->missing_slots[m] = at;
  }
  if (misses == 0) return;
  const uint64_t age = step - steps_done;
  HotRowUse& use = found->use;
  use.set_misses(misses);
  use.set_staleness_sum(use.staleness_sum() + misses * age);
  use.set_staleness_max(std::max<uint64_t>(use.staleness_max(), age));
}

uint32_t HotRowIndex::TakeSlot(uint64_t step) {
  // A full cache has a slot to give, since a batch has at most `capacity_` keys: the search ends.
  const bool full = slots_.size() == capacity_;
  const size_t looks = std::min(kLooks, slots_.size());
  for (size_t looked = 0; full || looked < looks; ++looked) {
    const uint32_t at = hand_;
    hand_ = hand_ + 1 < slots_.size() ? hand_ + 1 : 0;
    Slot& slot = slots_[at];
    // A row of this very batch.
    if (slot.needed_by == step + 1) continue;
    // Rows that are too old are of no use, so they go first. Only a full cache gives up a young
    // row: one that was used again is passed over once (the clock algorithm).
    if (Young(slot, step)) {
      if (!full) continue;
      if (slot.again) {
        slot.again = false;
        continue;
      }
    }
    Unlink(at);
    return at;
  }
  return AddSlot();
}

uint32_t HotRowIndex::AddSlot() {
  const uint32_t at = static_cast<uint32_t>(slots_.size());
  if (slots_.size() == buckets_.size()) {
    // Twice as many each time, so that chains stay short and linking all slots again costs little
    // in the long run.
    buckets_.assign(2 * buckets_.size(), kNone);
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) Link(slot);
  }
  slots_.emplace_back();
  return at;
}

void HotRowIndex::Link(uint32_t slot) {
  uint32_t& first = buckets_[BucketOf(slots_[slot].key)];
  slots_[slot].next = first;
  first = slot;
}

void HotRowIndex::Unlink(uint32_t slot) {
  uint32_t* at = &buckets_[BucketOf(slots_[slot].key)];
  while (*at != slot) at = &slots_[*at].next;
  *at = slots_[slot].next;
}

}  // namespace sluice
