// The operations of a step: launches of kernels and matrix products, all in order on one stream.
// CudaOps runs them on the device. Tests run the same calls on the host, so the code that chooses
// their arguments is tested without a GPU.
//
// Pointers are device memory. Sizes are padded; kernels stop at the real sizes of the header. The
// implementation keeps failures until it is asked for them.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "model/wide_deep/cuda/layer_kernels.h"
#include "model/wide_deep/cuda/row_kernels.h"
#include "model/wide_deep/cuda/step_layout.h"
#include "model/wide_deep/cuda/step_view.h"

namespace sluice::cuda {

// C = op(A) x op(B) as cuBLAS defines it: column major, op(A) [m, k], op(B) [k, n], C [m, n] f32.
struct Gemm {
  bool a_transposed = false, b_transposed = false;
  uint32_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  uint32_t lda = 0;
  const void* b = nullptr;
  uint32_t ldb = 0;
  float* c = nullptr;
  uint32_t ldc = 0;
  Element element = Element::kF32;  // type of A and B
  bool exact = true;                // f32: without TF32
};

struct BiasReluArgs {
  const StepHeader* header;
  const uint64_t* example_id;
  uint32_t layer;
  bool training;
  const float* bias;
  uint32_t units, rows;
  const float* z;  // [rows][ld_z]
  uint32_t ld_z;
  void* h;  // [rows][ld_h]
  uint32_t ld_h;
  uint32_t* overflow;
};

// LogitInput (layer_kernels.h) without the element type, and the results.
struct LogitArgs {
  const void* h;
  const float *output, *output_bias, *wide, *wide_bias;
  uint32_t units, ld, rows;
  float* logits;    // [rows]
  double* losses;   // [rows]; null: logits only
  float* d_logits;  // [rows]
};

struct BackwardArgs {
  const StepHeader* header;
  const void* h;  // [rows][ld]
  void* dz;       // [rows][ld]
  uint32_t units, ld, rows;
  float dropout_scale;
  const float* output;    // [units]; last hidden layer only
  const float* d_logits;  // [n]; last hidden layer only
  const float* product;   // [rows][ld]; other layers only
  double* partials;       // [slices][sums per column * units]
  SumTargets sums;
  uint32_t* overflow;
};

struct WideArgs {
  const StepHeader* header;
  WideBackward backward;
  uint32_t rows;
  double* partials;  // [slices][num_wide_numeric + 2]
  WideTargets sums;
};

struct SortArgs {
  const StepHeader* header;
  uint32_t pass, keys;
  const uint32_t *rows, *cells;
  uint32_t* counts;  // [kSortDigits][tiles]
  uint32_t *out_rows, *out_cells;
};

class StepOps {
 public:
  virtual ~StepOps() = default;

  virtual void Zero(void* to, size_t bytes) = 0;
  virtual void Multiply(const Gemm& gemm) = 0;

  virtual void ExpandCells(const BatchView& batch, uint32_t num_slots, uint32_t rows,
                           uint32_t* cells) = 0;
  virtual void SortPass(const SortArgs& args) = 0;
  virtual void FindRows(const StepHeader* header, const uint32_t* sorted_rows, uint32_t rows,
                        uint32_t* row_begin) = 0;

  virtual void ConvertWeights(Element element, const float* weights, uint32_t in, uint32_t out,
                              uint32_t ld, void* to, uint32_t* overflow) = 0;
  virtual void Gather(Element element, const NetView& net, const BatchView& batch, uint32_t rows,
                      uint32_t ld, void* to, uint32_t* overflow) = 0;
  virtual void BiasRelu(Element element, const BiasReluArgs& args) = 0;
  virtual void Logits(Element element, const NetView& net, const BatchView& batch,
                      const LogitArgs& args) = 0;
  virtual void OutputBackwardSums(Element element, const BackwardArgs& args) = 0;
  virtual void HiddenBackwardSums(Element element, const BackwardArgs& args) = 0;
  virtual void WideSums(const WideArgs& args) = 0;
  virtual void RowGradients(const NetView& net, const BatchView& batch, const RowGradientView& view,
                            uint32_t keys, uint32_t rows) = 0;
};

}  // namespace sluice::cuda
