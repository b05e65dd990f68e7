// The sparse table of a network on a CUDA device, which has one or none: wide_deep_nets.cc refuses
// models with several. Without one, there are no rows, and widths are 0.
//
// Thread safety:
//   pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/net/dense_net.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice::cuda {

inline size_t RowDimOf(const WideDeepShape& shape) {
  return shape.tables() == 0 ? 0 : shape.row_dim(0);
}
inline uint32_t EmbeddingDimOf(const WideDeepShape& shape) {
  return shape.tables() == 0 ? 0 : shape.embedding_dims[0];
}
inline bool HasWideColumn(const WideDeepShape& shape) {
  return shape.tables() > 0 && shape.wide_columns[0];
}

// The element of a list by sparse table, or an empty one.
template <typename T>
T OnlyTable(const std::vector<T>& by_table) {
  return by_table.empty() ? T() : by_table[0];
}

inline RowsInput RowsOf(const NetInput& input) { return OnlyTable(input.rows); }
inline float* RowsOf(const NetGradients& gradients) { return OnlyTable(gradients.rows); }

}  // namespace sluice::cuda
