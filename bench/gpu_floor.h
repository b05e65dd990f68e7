// The floor of a step on a GPU: its matrix products alone through cuBLAS, and its bytes from and to
// pinned memory, one after the other (values are up before the first product begins, and row
// gradients come down after the last).
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
  // Examples a second, over at least `seconds`; 0 when the device failed.
  virtual double Measure(double seconds) = 0;
};

}  // namespace sluice::bench
