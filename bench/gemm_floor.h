// Measures the floor of the standard wide&deep step: its nine matrix products alone, by oneDNN, on
// all cores.
//
// Thread safety: one calling thread; the work runs on OpenMP threads.
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
  // Returns examples per second: the best of three passes that take at least `seconds` in all. With
  // one thread, measured in processor time of the calling thread.
  double Measure(double seconds);

 private:
  struct Products;
  const std::unique_ptr<Products> products_;
};

}  // namespace sluice::bench
