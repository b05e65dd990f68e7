// Rows of the sparse table that stay where a network computes, in numbered slots, so that a step
// uploads only those that it does not hold. Which key lies in which slot is the caller's matter.
//
// A step reads its rows from slots instead of NetInput::rows when NetInput::resident is set.
// Thread safety: that of the network that made it; it ends before the network.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace sluice {

class ResidentRows {
 public:
  virtual ~ResidentRows() = default;
  virtual size_t capacity() const = 0;  // slots
  // Row i of values, [n][dim of the sparse table], goes to slots[i]; no slot twice. What the next
  // step reads is this. `values` and `slots` may be reused at return.
  // OUT_OF_RANGE when a slot is not below the capacity.
  virtual absl::Status Write(const uint32_t* slots, size_t n, const float* values) = 0;
};

}  // namespace sluice
