// Loops over independent items on OpenMP threads, in which oneDNN is kept to one thread.
//
// Thread safety: safe from any thread. The guards act on the calling thread.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"

namespace sluice {

// While it lives, oneDNN calls of this thread plan for, and use, `threads` threads.
class OmpThreads {
 public:
  explicit OmpThreads(int threads);
  ~OmpThreads();
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  const int before_;
};

class OneThreadGuard : public OmpThreads {
 public:
  OneThreadGuard() : OmpThreads(1) {}
};

// Calls body(lane, i) for i in [0, n) and some lane in [0, threads). No two calls share a lane at
// the same time. The threads belong to the calling thread.
// REQUIRES: an OneThreadGuard lives; body does not throw.
void ParallelFor(int threads, size_t n, absl::FunctionRef<void(int lane, size_t i)> body);

}  // namespace sluice
