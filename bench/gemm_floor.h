// The floor of the standard wide&deep step: its nine matrix products alone, by oneDNN, on all
// cores.
//
// Thread safety: one thread calls; it works with OpenMP threads.
#pragma once

#include <cstddef>
#include <memory>

namespace sluice::bench {

class GemmFloor {
 public:
  enum class Type { kF32, kBf16 };
  // Layers 273-400-400-400: forward, weight gradient and input gradient of each, for `batch`
  // examples at once.
  GemmFloor(size_t batch, Type type, int threads);
  ~GemmFloor();
  // Examples a second: the best of three passes of at least `seconds` in all. By processor time of
  // this thread when threads is 1.
  double Measure(double seconds);

 private:
  struct Products;
  const std::unique_ptr<Products> products_;
};

}  // namespace sluice::bench
