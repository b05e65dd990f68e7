#include "python/core/slot_rows.h"

namespace sluice {

void SlotRows::Fill(const Batch& batch, const uint32_t* row_index) {
  slots_ = batch.num_slots;
  examples_ = batch.n;
  const uint32_t* const at = batch.key_offsets.data();
  begins_.assign(slots_ + 1, 0);
  offsets_.resize(slots_ * (examples_ + 1));
  single_ = true;
  for (size_t s = 0; s < slots_; ++s) {
    int64_t* const offsets = &offsets_[s * (examples_ + 1)];
    offsets[0] = 0;
    for (size_t i = 0; i < examples_; ++i) {
      const int64_t n = at[i * slots_ + s + 1] - at[i * slots_ + s];
      offsets[i + 1] = offsets[i] + n;
      single_ &= n == 1;
    }
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
