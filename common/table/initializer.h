// Initial values of parameters.
//
// A value is a function of a stream's hash and a position in the stream. So any process can make
// any piece of a table, in any order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice {

// INVALID_ARGUMENT names the field and the fix. An absent initializer means zeros.
absl::Status ValidateInitializer(const Initializer& initializer);

// Sets out[i] to the value at position first + i of `stream`, for i < n.
// REQUIRES: ValidateInitializer accepts the initializer.
void FillInitial(const Initializer& initializer, uint64_t stream, uint64_t first, size_t n,
                 float* out);

}  // namespace sluice
