// Measures the floor of a step on a GPU: its matrix products alone (cuBLAS) and its copies from and
// to pinned memory. Nothing overlaps: values are copied up before the first product, and row
// gradients are copied down after the last.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/net/net_options.h"

namespace sluice::bench {

class GpuFloor {
 public:
  struct Shape {
    size_t batch = 0;
    std::vector<size_t> widths;  // [inputs, hidden...]
    size_t embeddings = 0;       // inputs that need a gradient
    size_t bytes_up = 0, bytes_down = 0;
  };
  static absl::StatusOr<std::unique_ptr<GpuFloor>> Create(const Shape& shape,
                                                          MatmulPrecision precision);
  virtual ~GpuFloor() = default;
  // Returns examples per second over at least `seconds`; 0 when the device failed.
  virtual double Measure(double seconds) = 0;
};

}  // namespace sluice::bench
