// StepOps on a CUDA device: kernels and cuBLAS on one stream.
//
// Invariants: All work is on one stream with its own workspace, so cuBLAS gives the same bits for
// the same call. The first failure is kept until TakeStatus.
//
// Thread safety: one thread, the device current.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/cuda/cuda_memory.h"
#include "common/cuda/cuda_stream.h"
#include "model/net/cuda/cublas_library.h"
#include "model/wide_deep/cuda/step_ops.h"

namespace sluice::cuda {

class CudaOps : public StepOps {
 public:
  // Work runs on `compute`, which must outlive this object, as must `memory`.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const Stream* compute,
                                                         DeviceMemory* memory);
  // Runs kernels only. Needs neither cuBLAS nor device memory.
  static std::unique_ptr<CudaOps> WithoutProducts(const Stream* stream);
  ~CudaOps() override;

  // Returns the first failure since the last call, and forgets it.
  absl::Status TakeStatus();

  void Zero(void* to, size_t bytes) override;
  void Multiply(const Gemm& gemm) override;
  void ExpandCells(const BatchView& batch, uint32_t num_slots, uint32_t rows,
                   uint32_t* cells) override;
  void SortPass(const SortArgs& args) override;
  void FindRows(const StepHeader* header, const uint32_t* sorted_rows, uint32_t rows,
                uint32_t* row_begin) override;
  void ConvertWeights(Element element, const float* weights, uint32_t in, uint32_t out, uint32_t ld,
                      void* to, uint32_t* overflow) override;
  void Gather(Element element, const NetView& net, const BatchView& batch, uint32_t rows,
              uint32_t ld, void* to, uint32_t* overflow) override;
  void BiasRelu(Element element, const BiasReluArgs& args) override;
  void Logits(Element element, const NetView& net, const BatchView& batch,
              const LogitArgs& args) override;
  void OutputBackwardSums(Element element, const BackwardArgs& args) override;
  void HiddenBackwardSums(Element element, const BackwardArgs& args) override;
  void WideSums(const WideArgs& args) override;
  void RowGradients(const NetView& net, const BatchView& batch, const RowGradientView& view,
                    uint32_t keys, uint32_t rows) override;

 private:
  explicit CudaOps(const Stream* compute) : compute_(*compute) {}
  void Keep(const absl::Status& status) { status_.Update(status); }
  // Keeps the status of the launch that was just made.
  void KeepLaunch(const char* kernel);

  const Stream& compute_;
  const CublasLibrary* cublas_ = nullptr;  // null: without products
  cublasHandle_t handle_ = nullptr;
  std::unique_ptr<DeviceBlock> workspace_;
  absl::Status status_;
};

}  // namespace sluice::cuda
