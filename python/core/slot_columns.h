// Rows of one feature's values, copied to where a program wants them, and gradients added back.
//
// Format:
//   table row       [row_dim] floats; the collection has [first, first + dim)
//   program's array [n][dim], one row for each value of the slot, in the order of the values
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

// Where the values of a slot are in the rows of their table.
struct SlotColumns {
  const int64_t* rows = nullptr;  // [n]: the table's row of each value
  size_t n = 0;
  size_t row_dim = 0;
  size_t first = 0;
  size_t dim = 0;
};

void CopySlotRows(const float* table, const SlotColumns& at, float* to);

// Adds each value's gradient to that of its row; those of equal values add up in their order.
// Returns the first value whose gradient is not finite, and adds nothing then; -1: all are finite.
int64_t AddSlotGradients(const float* from, const SlotColumns& at, float* table);

}  // namespace sluice
