#include "model/wide_deep/cuda/cuda_input_device.h"

#include <cuda_runtime_api.h>

#include "common/base/status_macros.h"

namespace sluice::cuda {

absl::StatusOr<std::unique_ptr<CudaInputDevice>> CudaInputDevice::Create(const Stream* up,
                                                                         const Stream* compute,
                                                                         const StepProgram* program,
                                                                         const PinnedMemory* pinned,
                                                                         DeviceMemory* memory) {
  std::unique_ptr<CudaInputDevice> device(
      new CudaInputDevice(up, compute, program, pinned, memory));
  SLUICE_RETURN_IF_ERROR(device->index_.Create());
  for (Event* event : {&device->batch_up_, &device->values_up_})
    SLUICE_RETURN_IF_ERROR(event->Create(/*timing=*/false));
  for (Block& block : device->blocks_) SLUICE_RETURN_IF_ERROR(block.index.Create());
  device->ops_ = CudaOps::WithoutProducts(&device->index_);
  return device;
}

CudaInputDevice::~CudaInputDevice() {
  // A batch that was never trained, or a step that failed half way, may have left copies and sorts
  // that still use the blocks.
  (void)cudaStreamSynchronize(up_.get());
  if (index_.get() != nullptr) (void)cudaStreamSynchronize(index_.get());
}

absl::Status CudaInputDevice::Reserve(size_t block, size_t up_bytes, size_t bytes) {
  SLUICE_RETURN_IF_ERROR(blocks_[block].device.Reserve(bytes));
  return blocks_[block].pinned.Reserve(up_bytes);
}

void CudaInputDevice::Release(size_t block) {
  blocks_[block].device.Release();
  blocks_[block].pinned.Release();
}

absl::Status CudaInputDevice::Upload(size_t block, const Piece& piece) {
  if (piece.begin >= piece.end) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(data(block) + piece.begin, pinned(block) + piece.begin,
                                    piece.end - piece.begin, cudaMemcpyHostToDevice, up_.get()),
                    "cudaMemcpyAsync");
}

absl::Status CudaInputDevice::UploadFrom(size_t block, const void* from, size_t to, size_t bytes) {
  return CudaStatus(
      cudaMemcpyAsync(data(block) + to, from, bytes, cudaMemcpyHostToDevice, up_.get()),
      "cudaMemcpyAsync");
}

absl::Status CudaInputDevice::Index(size_t block, const StepShape& shape) {
  SLUICE_RETURN_IF_ERROR(batch_up_.Record(up_));
  SLUICE_RETURN_IF_ERROR(batch_up_.HoldBack(index_));
  Span& span = blocks_[block].index;
  SLUICE_RETURN_IF_ERROR(span.begin.Record(index_));
  if (program_.has_index(shape)) {
    char* const input = data(block);
    SLUICE_RETURN_IF_ERROR(graphs_.Run({kIndex, shape, input, nullptr}, index_, [&] {
      program_.Index(shape, input, ops_.get());
      return ops_->TakeStatus();
    }));
  }
  return span.end.Record(index_);
}

absl::Status CudaInputDevice::HoldBack(size_t block) {
  SLUICE_RETURN_IF_ERROR(values_up_.Record(up_));
  SLUICE_RETURN_IF_ERROR(values_up_.HoldBack(compute_));
  return blocks_[block].index.end.HoldBack(compute_);
}

absl::Status CudaInputDevice::Wait() {
  SLUICE_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(up_.get()));
  return CudaStatus(cudaStreamSynchronize(index_.get()), "cudaStreamSynchronize");
}

}  // namespace sluice::cuda
