// StepOps on a CUDA device: kernels and cuBLAS on one stream, weight gradients down on another.
//
// Invariants: one stream and a workspace of its own, so cuBLAS gives the same bits for the same
// call. The first failure is kept until TakeStatus. Thread safety: one thread, the device current.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/net/cuda/cublas_library.h"
#include "model/net/cuda/cuda_memory.h"
#include "model/net/cuda/cuda_stream.h"
#include "model/net/cuda/step_ops.h"

namespace sluice::cuda {

class CudaOps : public StepOps {
 public:
  // Work goes on `compute`, copies to the host on `down`; both and `memory` outlive this.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const Stream* compute, const Stream* down,
                                                         size_t layers, DeviceMemory* memory);
  ~CudaOps() override;

  // Where gradients that are done come down from and go to; `layout` outlives the use.
  void SetDownload(const NetPlan* plan, const OutputLayout* layout, const char* from, char* to) {
    plan_ = plan, layout_ = layout, from_ = from, to_ = to;
  }
  // Bytes [begin, end) of the output block, when what is on `compute` so far is done.
  void Download(size_t begin, size_t end);
  // What is put on `compute` from now on waits for all downloads.
  void JoinDownloads();
  // The first failure since the last call.
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
  void WeightGradientDone(size_t layer) override;

 private:
  CudaOps(const Stream* compute, const Stream* down, DeviceMemory* memory)
      : compute_(*compute), down_(*down), workspace_(memory, "cuBLAS's workspace") {}
  void Keep(const absl::Status& status) { status_.Update(status); }
  // Of the launch just made.
  void KeepLaunch(const char* kernel);

  const Stream& compute_;
  const Stream& down_;
  const CublasLibrary* cublas_ = nullptr;
  cublasHandle_t handle_ = nullptr;
  DeviceBlock workspace_;
  std::vector<std::unique_ptr<Event>> done_;  // by download of a step
  size_t downloads_ = 0;
  Event joined_;
  const NetPlan* plan_ = nullptr;
  const OutputLayout* layout_ = nullptr;
  const char* from_ = nullptr;
  char* to_ = nullptr;
  absl::Status status_;
};

}  // namespace sluice::cuda
