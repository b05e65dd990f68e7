// The data that the kernels of one step see: sizes, the batch, and the constant tables of the
// network.
//
// Launches are planned for padded sizes. Every kernel stops at the real sizes, which are in the
// header that is uploaded with the values. So one CUDA graph serves batches of nearly the same
// size.
//
// Memory: borrowed pointers to device memory, in host tests to host memory.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"
#include "model/net/dropout.h"

namespace sluice::cuda {

// Uploaded with each step. A copy with the sizes alone is uploaded with the batch.
struct StepHeader {
  uint32_t n;              // examples
  uint32_t keys;           // K
  uint32_t rows;           // U
  uint32_t unused;         // aligns the next field
  const float* resident;   // rows read by slot, [slots][row_dim]; null: BatchView::rows
  double gradient_factor;  // loss scale / sum of weights; multiplies an example's weighted error
  Dropout dropout;
};

// Downloaded with the gradients.
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
  int32_t deep_column;  // first column of its embedding in the deep input; -1: not in the deep part
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
