// Computes C = A x B for one fixed shape with oneDNN, on several threads at a time.
//
// Each thread has its own lane. Operands are f32, or bf16 with f32 sums. oneDNN multiplies bf16
// only on processors with AVX-512; on others the operands are widened to f32, which changes no
// factor.
//
// Invariants: one thread computes one call, and the shape fixes the kernel. So an element of C
// depends only on its row of A and on B (with accumulate also on its previous value).
//
// Memory: allocated by Create. Run and Pack allocate nothing themselves, except where operands are
// widened: then each thread keeps buffers as large as its largest operands.
//
// Thread safety: one thread for each lane. Create is safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dnnl.hpp"

namespace sluice {

class Matmul {
 public:
  // A is [m, k] with row i at i * lda; when transposed, its memory is [k, m] with rows of lda. B is
  // [k, n]; when transposed, its memory is [n, k]. C is [m, n]. Rows of B and C are contiguous.
  struct Shape {
    int64_t m = 0, k = 0, n = 0;
    bool a_transposed = false;
    bool b_transposed = false;
    int64_t lda = 0;
    bool b_packed = false;    // B is given in the kernel's own layout, made by Pack
    bool accumulate = false;  // C += A x B
    bool bf16 = false;        // A and B (before Pack: A only) are bf16
    bool operator<(const Shape& o) const {
      return std::tie(m, k, n, a_transposed, b_transposed, lda, b_packed, accumulate, bf16) <
             std::tie(o.m, o.k, o.n, o.a_transposed, o.b_transposed, o.lda, o.b_packed,
                      o.accumulate, o.bf16);
    }
  };

  // Whether oneDNN multiplies bf16 on this processor; otherwise Matmul widens the operands.
  static bool HasBf16Products();

  // INTERNAL, naming the shape, when oneDNN refuses it.
  static absl::StatusOr<std::unique_ptr<Matmul>> Create(const Shape& shape, int lanes);

  // The size of a packed B.
  size_t packed_bytes() const { return packed_bytes_; }
  // `b` is f32, in the layout that the shape says.
  // REQUIRES: b_packed.
  void Pack(int lane, const float* b, void* packed);
  void Run(int lane, const void* a, const void* b, float* c);

 private:
  // Memory objects of one thread; the data pointers are set for each call.
  struct Lane {
    dnnl::stream stream;
    dnnl::memory a, b, c, plain;
    std::unordered_map<int, dnnl::memory> args, pack_args;
  };
  explicit Matmul(const Shape& shape);
  absl::Status MakePlan(int lanes);

  const Shape shape_;
  const bool widen_;  // the operands are bf16, but oneDNN's are f32
  dnnl::matmul primitive_;
  dnnl::reorder pack_;  // empty unless b_packed
  size_t packed_bytes_ = 0;
  std::vector<Lane> lanes_;
};

}  // namespace sluice
