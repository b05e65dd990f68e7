// Initial values: a function of a stream's hash and a position in it, so that any piece of a table
// can be made anywhere, in any order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice {

// INVALID_ARGUMENT names the field and the fix. An absent initializer means zeros.
absl::Status ValidateInitializer(const Initializer& initializer);

// out[i] = value at position first + i of `stream`. REQUIRES: a valid initializer.
void FillInitial(const Initializer& initializer, uint64_t stream, uint64_t first, size_t n,
                 float* out);

}  // namespace sluice
