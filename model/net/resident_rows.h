// Rows of the sparse table that stay in numbered slots where a network computes.
//
// A step uploads only the rows that are not there. The caller decides which key is in which slot.
// When NetInput::resident is set, a step reads its rows from slots instead of NetInput::rows. The
// network that made the rows outlives them.
//
// Thread safety: one thread. It is the network's thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace sluice {

class ResidentRows {
 public:
  virtual ~ResidentRows() = default;
  virtual size_t capacity() const = 0;  // slots
  // Writes row i of values, [n][dim of the sparse table], to slots[i]; no slot occurs twice. The
  // next step reads these values. The caller may reuse `values` and `slots` after the return.
  // OUT_OF_RANGE when a slot is not below the capacity.
  virtual absl::Status Write(const uint32_t* slots, size_t n, const float* values) = 0;
};

}  // namespace sluice
