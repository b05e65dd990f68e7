// The rows of a batch's keys, slot by slot, as frameworks look up rows: values and offsets.
//
// A batch has the keys of one example side by side. A framework looks up one feature of all
// examples at a time, so this is the transposed order.
//
// Memory: kept from batch to batch.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/features/batch.h"

namespace sluice {

class SlotRows {
 public:
  // `row_index`: [batch.keys.size()], as in NetInput.
  void Fill(const Batch& batch, const uint32_t* row_index);

  size_t slots() const { return slots_; }
  size_t examples() const { return examples_; }
  // Every example has exactly one key in every slot. Then rows() is [slots][examples].
  bool single() const { return single_; }
  // Rows of all slots, one slot after the other; those of slot s begin at begin(s).
  const std::vector<int64_t>& rows() const { return rows_; }
  size_t begin(size_t slot) const { return begins_[slot]; }
  size_t end(size_t slot) const { return begins_[slot + 1]; }
  // [examples + 1]: keys of example i of the slot are rows()[begin(s) + offsets[i], begin(s) +
  // offsets[i + 1]).
  const int64_t* offsets(size_t slot) const {
    return &offsets_[single_ ? 0 : slot * (examples_ + 1)];
  }

 private:
  // Fill, with single() and without.
  void FillMatrix(const uint32_t* row_index);
  void FillLists(const Batch& batch, const uint32_t* row_index);

  size_t slots_ = 0, examples_ = 0;
  bool single_ = false;
  std::vector<int64_t> rows_;
  std::vector<size_t> begins_;    // [slots + 1]
  std::vector<int64_t> offsets_;  // [slots][examples + 1]; with single() those of every slot
};

}  // namespace sluice
