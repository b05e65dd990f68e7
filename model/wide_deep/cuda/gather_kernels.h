// Embedding gather, pooling and concatenation, for one element of the deep input. The .cu file
// loops over the grid; tests loop on the host.
//
// Thread safety: pure functions.
#pragma once

#include "model/net/cuda/half_types.h"
#include "model/wide_deep/cuda/step_view.h"

namespace sluice::cuda {

// Deep input of example i in column c: an element of a slot's pooled embedding, or a number; 0 in
// padding (i >= n or c >= deep_inputs). Keys are added in order, as on the CPU.
SLUICE_HD inline float DeepInput(const NetView& net, const BatchView& batch, uint32_t i,
                                 uint32_t c) {
  if (i >= batch.header->n || c >= net.deep_inputs) return 0.0f;
  const ColumnTable column = net.columns[c];
  if (column.slot < 0)
    return batch.numeric[static_cast<uint64_t>(i) * net.num_numeric + column.index];
  const uint64_t cell = static_cast<uint64_t>(i) * net.num_slots + column.slot;
  const uint32_t begin = batch.key_offsets[cell], end = batch.key_offsets[cell + 1];
  const uint32_t offset = net.embedding_begin + column.index;
  float sum = 0.0f;
  for (uint32_t k = begin; k < end; ++k) sum += RowOfKey(net, batch, k)[offset];
  return net.slots[column.slot].mean && end - begin > 1 ? sum / static_cast<float>(end - begin)
                                                        : sum;
}

template <typename T>
SLUICE_HD inline void GatherElement(const NetView& net, const BatchView& batch, uint32_t i,
                                    uint32_t c, uint32_t ld, T* to, uint32_t* overflow) {
  Store(DeepInput(net, batch, i, c), to + static_cast<uint64_t>(i) * ld + c, overflow);
}

}  // namespace sluice::cuda
