#include "python/core/slot_rows.h"

#include <algorithm>
#include <numeric>

namespace sluice {

void SlotRows::Fill(const Batch& batch, const uint32_t* row_index) {
  slots_ = batch.num_slots;
  examples_ = batch.n;
  begins_.assign(slots_ + 1, 0);
  const uint32_t* const at = batch.key_offsets.data();
  uint32_t others = 0;  // without an early end, so that the compiler vectorizes it
  for (size_t k = 0; k < slots_ * examples_; ++k) others |= (at[k + 1] - at[k]) ^ 1;
  single_ = others == 0;
  single_ ? FillMatrix(row_index) : FillLists(batch, row_index);
}

void SlotRows::FillMatrix(const uint32_t* row_index) {
  // Of so many examples at a time the keys fit into the cache, and each slot gets whole lines.
  constexpr size_t kExamples = 32;
  offsets_.resize(examples_ + 1);
  std::iota(offsets_.begin(), offsets_.end(), 0);
  for (size_t s = 0; s <= slots_; ++s) begins_[s] = s * examples_;
  rows_.resize(slots_ * examples_);
  for (size_t first = 0; first < examples_; first += kExamples) {
    const size_t n = std::min(kExamples, examples_ - first);
    for (size_t s = 0; s < slots_; ++s) {
      const uint32_t* const from = row_index + first * slots_ + s;
      int64_t* const to = rows_.data() + s * examples_ + first;
      for (size_t i = 0; i < n; ++i) to[i] = from[i * slots_];
    }
  }
}

void SlotRows::FillLists(const Batch& batch, const uint32_t* row_index) {
  const uint32_t* const at = batch.key_offsets.data();
  offsets_.resize(slots_ * (examples_ + 1));
  for (size_t s = 0; s < slots_; ++s) {
    int64_t* const offsets = &offsets_[s * (examples_ + 1)];
    offsets[0] = 0;
    for (size_t i = 0; i < examples_; ++i)
      offsets[i + 1] = offsets[i] + at[i * slots_ + s + 1] - at[i * slots_ + s];
    begins_[s + 1] = begins_[s] + static_cast<size_t>(offsets[examples_]);
  }
  rows_.resize(begins_[slots_]);
  for (size_t i = 0; i < examples_; ++i) {
    for (size_t s = 0; s < slots_; ++s) {
      int64_t* to = rows_.data() + begins_[s] + offsets_[s * (examples_ + 1) + i];
      for (uint32_t k = at[i * slots_ + s]; k < at[i * slots_ + s + 1]; ++k) *to++ = row_index[k];
    }
  }
}

}  // namespace sluice
