// The rows of a shard that are gone and that an export may still have to name: their keys, each
// with the schedule step at which the row went.
//
// Thread safety: guarded by the owner's lock (the shard's).
//
// Memory: 16 bytes each, at most kMost of them. When there are more, the older half is dropped, and
// complete_since() says which exports the list still suffices for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/model.pb.h"

namespace sluice {

class RowTombstones {
 public:
  // With as many in the header of a shard's file, the header stays far below what readers accept.
  static constexpr size_t kMost = 1 << 14;

  struct Tombstone {
    uint64_t key, step;
    bool operator<(const Tombstone& other) const {
      return step != other.step ? step < other.step : key < other.key;
    }
  };

  // A delta from schedule step `since` on names what went at this step or later. A row that goes
  // between two updates of async has the step of the one before, which the cut of the export before
  // may already count as done.
  static uint64_t StepOfDelta(uint64_t since) { return since - 1; }

  // Throws bad_alloc, changing nothing.
  void Add(uint64_t key, uint64_t step);
  void Add(const RowTombstones& others);
  // Drops the rows that went before `step`, which no export needs any more.
  void DropBefore(uint64_t step);
  // Appends the keys of the rows that went at `step` or later.
  void AddKeysSince(uint64_t step, std::vector<uint64_t>* keys) const;
  // The list has every row that went at this schedule step or later.
  uint64_t complete_since() const { return complete_since_; }
  size_t size() const { return gone_.size(); }

  // Writes the list in the order of step and key, so that equal lists are equal bytes.
  void Write(ShardFacts* facts) const;
  // Replaces the list by that of `facts`. Facts without a list are those of a shard that kept none:
  // nothing is known of what went before them.
  void Restore(const ShardFacts& facts);

 private:
  // Drops the older ones of more than kMost. All of a step go together.
  void Bound();

  std::vector<Tombstone> gone_;
  uint64_t complete_since_ = 0;
};

}  // namespace sluice
