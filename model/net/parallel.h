// Loops over independent items on OpenMP threads, and the guard that keeps oneDNN to one thread
// inside them.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace sluice {

// While it lives, oneDNN calls made by this thread plan for, and use, one thread.
class OneThreadGuard {
 public:
#ifdef _OPENMP
  OneThreadGuard() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThreadGuard() { omp_set_num_threads(before_); }

 private:
  const int before_;
#else
  OneThreadGuard() {}
  ~OneThreadGuard() {}
#endif
};

// body(lane, i) for i in [0, n), lane in [0, threads): no two calls share a lane at the same time.
// The team belongs to the calling thread. REQUIRES: an OneThreadGuard lives; body does not throw.
template <typename Body>
void ParallelFor(int threads, size_t n, const Body& body) {
#ifdef _OPENMP
  if (threads > 1 && n > 1) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < static_cast<int64_t>(n); ++i)
      body(omp_get_thread_num(), static_cast<size_t>(i));
    return;
  }
#endif
  for (size_t i = 0; i < n; ++i) body(0, i);
}

}  // namespace sluice
