// Loops over independent items on OpenMP threads, in which oneDNN is kept to one thread.
//
// Thread safety: safe from any thread. The guards act on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace sluice {

// While it lives, oneDNN calls of this thread plan for, and use, `threads` threads.
class OmpThreads {
 public:
#ifdef _OPENMP
  explicit OmpThreads(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~OmpThreads() { omp_set_num_threads(before_); }

 private:
  const int before_;
#else
  explicit OmpThreads(int) {}
  ~OmpThreads() {}
#endif
};

class OneThreadGuard : public OmpThreads {
 public:
  OneThreadGuard() : OmpThreads(1) {}
};

// Calls body(lane, i) for i in [0, n) and some lane in [0, threads). No two calls share a lane at
// the same time. The threads belong to the calling thread.
// REQUIRES: an OneThreadGuard lives; body does not throw.
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
