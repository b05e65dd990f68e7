#include "model/net/parallel.h"

#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace sluice {

// Only this file is compiled for OpenMP, so that all others have the same flags and share
// precompiled headers.
#ifdef _OPENMP
OmpThreads::OmpThreads(int threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(threads);
}

OmpThreads::~OmpThreads() { omp_set_num_threads(before_); }
#else
OmpThreads::OmpThreads(int) : before_(1) {}

OmpThreads::~OmpThreads() = default;
#endif

void ParallelFor(int threads, size_t n, absl::FunctionRef<void(int lane, size_t i)> body) {
#ifdef _OPENMP
  if (threads > 1 && n > 1) {
    // Items differ in size, so each thread takes the next one when it is free.
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < static_cast<int64_t>(n); ++i)
      body(omp_get_thread_num(), static_cast<size_t>(i));
    return;
  }
#endif
  for (size_t i = 0; i < n; ++i) body(0, i);
}

}  // namespace sluice
