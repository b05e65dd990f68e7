// C = A x B in f32 for one fixed shape: a oneDNN matmul that several threads may run at once, each
// on its own lane.
//
// Invariants: one thread computes one call, and the kernel is fixed with the shape, so an element
// of C depends only on its row of A, on B, and on nothing else. Memory: made once; Run allocates
// nothing of ours. Thread safety: Run on different lanes at once; Create anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "dnnl.hpp"

namespace sluice {

class Matmul {
 public:
  // A is [m, k]. Plain: row i begins at i * lda. Transposed: it lies in memory as [k, m] with rows
  // of lda. B is [k, n]; transposed: in memory [n, k]. C is [m, n]. Rows of B and C are dense.
  struct Shape {
    int64_t m = 0, k = 0, n = 0;
    bool a_transposed = false;
    bool b_transposed = false;
    int64_t lda = 0;
    bool operator<(const Shape& o) const {
      return std::tie(m, k, n, a_transposed, b_transposed, lda) <
             std::tie(o.m, o.k, o.n, o.a_transposed, o.b_transposed, o.lda);
    }
  };

  // INTERNAL when oneDNN refuses, with the shape.
  static absl::StatusOr<std::unique_ptr<Matmul>> Create(const Shape& shape, int lanes);

  void Run(int lane, const float* a, const float* b, float* c);

 private:
  // Memory objects of one thread; the data pointers are set for each call.
  struct Lane {
    dnnl::stream stream;
    dnnl::memory a, b, c;
    std::unordered_map<int, dnnl::memory> args;
  };
  Matmul() = default;

  dnnl::matmul primitive_;
  std::vector<Lane> lanes_;
};

}  // namespace sluice
