// The forward and the backward pass through the rows of the sparse table, for one element. The .cu
// file loops over the grid; tests loop on the host.
//
// Forward: embedding gather, pooling and concatenation.
//
// Backward: a scatter without atomics. The gradient of each unique row is a sum over the cells that
// touch the row.
//
// The sorted keys (sort_kernels.h) are cut into chunks of kChunk. A thread walks one chunk for one
// column of the rows (SumChunk). It finishes rows that lie inside the chunk. A row that crosses a
// border leaves its part in heads (if it began before the chunk) or in tails (if it began in the
// chunk). FinishRow adds the parts of such rows in order, in double, and writes 0 for rows that no
// key touches.
//
// Thread safety: pure functions, each on its own elements.
#pragma once

#include <cstdint>

#include "model/net/cuda/half_types.h"
#include "model/wide_deep/cuda/step_view.h"

namespace sluice::cuda {

// ------------------------------------------------------------------ forward
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

// ------------------------------------------------------------------ backward
constexpr uint32_t kChunk = 32;

SLUICE_HD inline uint32_t Chunks(uint32_t keys) { return (keys + kChunk - 1) / kChunk; }

struct RowGradientView {
  const uint32_t* sorted_rows;   // [K]
  const uint32_t* sorted_cells;  // [K]
  const uint32_t* row_begin;     // [U + 1]
  const float* d_logits;         // [n]
  const float* d_input;          // [n][ld]: gradient of the deep input's embeddings
  uint32_t ld;
  float* heads;     // [chunks][row_dim]
  float* tails;     // [chunks][row_dim]
  float* gradient;  // [U][row_dim]
};

// The gradient that one key of a cell adds to column j of its row.
SLUICE_HD inline float CellGradient(const NetView& net, const BatchView& batch,
                                    const RowGradientView& view, uint32_t cell, uint32_t j) {
  const uint32_t example = cell / net.num_slots, s = cell - example * net.num_slots;
  const SlotTable slot = net.slots[s];
  if (j < net.embedding_begin) return slot.wide ? view.d_logits[example] : 0.0f;
  if (slot.deep_column < 0) return 0.0f;
  const float d = view.d_input[static_cast<uint64_t>(example) * view.ld + slot.deep_column +
                               (j - net.embedding_begin)];
  if (!slot.mean) return d;
  const uint32_t keys = batch.key_offsets[cell + 1] - batch.key_offsets[cell];
  return keys > 1 ? d / static_cast<float>(keys) : d;
}

SLUICE_HD inline void StoreChunkSum(const NetView& net, const RowGradientView& view, uint32_t chunk,
                                    uint32_t row, uint32_t j, float sum) {
  const bool begun_before = view.row_begin[row] < chunk * kChunk;
  const bool goes_on = view.row_begin[row + 1] > (chunk + 1) * kChunk;
  const uint64_t part = static_cast<uint64_t>(chunk) * net.row_dim + j;
  if (begun_before) {
    view.heads[part] = sum;
  } else if (goes_on) {
    view.tails[part] = sum;
  } else {
    view.gradient[static_cast<uint64_t>(row) * net.row_dim + j] = sum;
  }
}

SLUICE_HD inline void SumChunk(const NetView& net, const BatchView& batch,
                               const RowGradientView& view, uint32_t chunk, uint32_t j) {
  const uint32_t keys = batch.header->keys;
  const uint32_t begin = chunk * kChunk;
  if (begin >= keys) return;
  const uint32_t end = begin + kChunk < keys ? begin + kChunk : keys;
  uint32_t row = view.sorted_rows[begin];
  float sum = 0.0f;
  for (uint32_t p = begin; p < end; ++p) {
    if (view.sorted_rows[p] != row) {
      StoreChunkSum(net, view, chunk, row, j, sum);
      row = view.sorted_rows[p];
      sum = 0.0f;
    }
    sum += CellGradient(net, batch, view, view.sorted_cells[p], j);
  }
  StoreChunkSum(net, view, chunk, row, j, sum);
}

SLUICE_HD inline void FinishRow(const NetView& net, const BatchView& batch,
                                const RowGradientView& view, uint32_t row, uint32_t j) {
  if (row >= batch.header->rows) return;
  const uint64_t at = static_cast<uint64_t>(row) * net.row_dim + j;
  const uint32_t begin = view.row_begin[row], end = view.row_begin[row + 1];
  if (begin == end) {
    view.gradient[at] = 0.0f;
    return;
  }
  const uint32_t first = begin / kChunk, last = (end - 1) / kChunk;
  if (first == last) return;
  double sum = view.tails[static_cast<uint64_t>(first) * net.row_dim + j];
  for (uint32_t c = first + 1; c <= last; ++c)
    sum += view.heads[static_cast<uint64_t>(c) * net.row_dim + j];
  view.gradient[at] = static_cast<float>(sum);
}

}  // namespace sluice::cuda
