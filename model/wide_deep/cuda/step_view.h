// What the kernels of one step see: sizes, the batch, and the constant tables of the network.
//
// Real sizes are in the header that goes up with the batch; launches are planned for padded sizes
// and every kernel stops at the real ones, so that one CUDA graph serves batches of nearly the same
// size.
//
// Memory: pointers to device memory (in host tests: to host memory), borrowed.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"
#include "model/net/dropout.h"

namespace sluice::cuda {

// Goes up with each step; its sizes also with the batch alone.
struct StepHeader {
  uint32_t n;              // examples
  uint32_t keys;           // K
  uint32_t rows;           // U
  uint32_t unused;         // keeps what follows on its border
  const float* resident;   // rows that are read by slot, [slots][row_dim]; null: those of BatchView
  double gradient_factor;  // of an example's weighted error: loss scale / sum of weights
  Dropout dropout;
};

// Comes down with the gradients.
struct StepResult {
  double loss_sum;
  uint32_t overflow;  // 1: a 16-bit value was infinite or NaN
  uint32_t unused;
};

struct BatchView {
  const StepHeader* header;
  const float* label;           // [n]
  const float* weight;          // [n]
  const float* numeric;         // [n][num_numeric]
  const uint32_t* key_offsets;  // [n * num_slots + 1]
  const uint32_t* row_index;    // [K]
  const uint64_t* example_id;   // [n]; only with dropout
  const uint32_t* slots;        // [U]; only with resident rows
  const float* rows;            // [U][row_dim]
};

// A slot of the network.
struct SlotTable {
  int32_t deep_column;  // of the deep input, where its embedding begins; -1: not in the deep part
  uint16_t wide;        // in the wide part, and rows have a wide column
  uint16_t mean;
};
// A column of the deep input.
struct ColumnTable {
  int32_t slot;    // -1: a number
  uint32_t index;  // within the embedding, or among the example's numbers
};

// Constant for a network.
struct NetView {
  uint32_t num_numeric, num_slots;
  uint32_t row_dim, embedding_begin, embedding_dim;
  uint32_t deep_inputs;  // 0: no deep part
  uint32_t num_wide_numeric;
  const SlotTable* slots;        // [num_slots]
  const ColumnTable* columns;    // [deep_inputs]
  const uint32_t* wide_numeric;  // [num_wide_numeric]
};

// The row of key k: [row_dim].
SLUICE_HD inline const float* RowOfKey(const NetView& net, const BatchView& batch, uint32_t k) {
  const uint32_t row = batch.row_index[k];
  const float* const resident = batch.header->resident;
  if (resident == nullptr) return batch.rows + static_cast<uint64_t>(row) * net.row_dim;
  return resident + static_cast<uint64_t>(batch.slots[row]) * net.row_dim;
}

}  // namespace sluice::cuda
