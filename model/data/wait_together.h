// Makes calls that wait for answers from far away, several at once.
//
// Thread safety: free function, safe from any thread.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"

namespace sluice {

// Calls body(i) for i in [0, n), on up to 16 threads of its own, and waits for all.
// REQUIRES: body is safe from any thread, and does not throw.
void WaitTogether(size_t n, absl::FunctionRef<void(size_t i)> body);

}  // namespace sluice
