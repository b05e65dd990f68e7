#include "model/net/cuda/cuda_table_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "model/net/cuda/table_launches.h"

namespace sluice::cuda {
namespace {

// Launches on one stream and keeps the first failure.
class CudaTableOps : public TableOps {
 public:
  explicit CudaTableOps(cudaStream_t stream) : stream_(stream) {}
  const absl::Status& status() const { return status_; }

  void Fill(const FillArgs& args) override { on_device::LaunchFill(stream_, args), Keep("Fill"); }
  void Delta(const DeltaArgs& args) override {
    on_device::LaunchDelta(stream_, args), Keep("Delta");
  }
  void Merge(const MergeArgs& args) override {
    on_device::LaunchMerge(stream_, args), Keep("Merge");
  }
  void Scales(const UpdateArgs& args) override {
    on_device::LaunchScales(stream_, args), Keep("Scales");
  }
  void Update(const UpdateArgs& args) override {
    on_device::LaunchUpdate(stream_, args), Keep("Update");
  }
  void Squares(const SquaresArgs& args) override {
    on_device::LaunchSquares(stream_, args), Keep("Squares");
  }
  void Norm(const NormArgs& args) override { on_device::LaunchNorm(stream_, args), Keep("Norm"); }

 private:
  void Keep(const char* kernel) { status_.Update(CudaStatus(cudaGetLastError(), kernel)); }
  const cudaStream_t stream_;
  absl::Status status_;
};

class CudaTableBlock : public TableBlock {
 public:
  CudaTableBlock(const CudaTableDevice::Options& options, const char* what)
      : options_(options), block_(options.memory, what, options.advice), what_(what) {}
  ~CudaTableBlock() override {
    // Kernels of the last Run may still use the block.
    (void)cudaSetDevice(options_.ordinal);
    (void)cudaStreamSynchronize(options_.compute->get());
  }
  char* data() const override { return block_.data(); }
  size_t capacity() const override { return block_.capacity(); }
  absl::Status Reserve(size_t bytes, bool keep) override;

 private:
  absl::Status TryReserve(size_t bytes, bool keep);
  // Copies on the device, which holds the old and the new block for a moment.
  absl::Status Grow(size_t bytes);
  // Copies through host memory. DATA_LOSS when the device then has no room for the larger block,
  // and no longer for the old one either.
  absl::Status GrowThroughHost(size_t bytes);
  const CudaTableDevice::Options options_;
  DeviceBlock block_;
  const char* const what_;
};

absl::Status CudaTableBlock::Reserve(size_t bytes, bool keep) {
  const absl::Status status = TryReserve(bytes, keep);
  // The memory of batches ahead is given back first, then there is one more try.
  if (!absl::IsResourceExhausted(status) || !options_.make_room()) return status;
  return TryReserve(bytes, keep);
}

absl::Status CudaTableBlock::TryReserve(size_t bytes, bool keep) {
  if (bytes <= block_.capacity()) return absl::OkStatus();
  SLUICE_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.ordinal));
  SLUICE_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(options_.compute->get()));
  if (!keep || block_.capacity() == 0) return block_.Reserve(bytes);
  const absl::Status status = Grow(bytes);
  // Growing on the device needs room for the old and the new block at once; through the host, only
  // for the new one.
  const size_t others = options_.memory->used() - block_.capacity();
  const bool fits = bytes <= options_.memory->limit() - others;
  return absl::IsResourceExhausted(status) && fits ? GrowThroughHost(bytes) : status;
}

absl::Status CudaTableBlock::Grow(size_t bytes) {
  DeviceBlock larger(options_.memory, what_, options_.advice);
  SLUICE_RETURN_IF_ERROR(larger.Reserve(bytes));
  SLUICE_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(larger.data(), block_.data(), block_.capacity(), cudaMemcpyDeviceToDevice));
  // cudaMemcpy may return before the copy has ended.
  SLUICE_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  block_.Swap(&larger);
  return absl::OkStatus();
}

absl::Status CudaTableBlock::GrowThroughHost(size_t bytes) {
  const size_t held = block_.capacity();
  const std::unique_ptr<char[]> contents(new (std::nothrow) char[held]);
  if (contents == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the host has no ", held, " bytes of memory to copy ", what_,
                     " to a larger block; lower ", options_.advice));
  }
  SLUICE_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(contents.get(), block_.data(), held, cudaMemcpyDeviceToHost));
  const absl::Status grown = block_.Reserve(bytes);
  // The old block was freed for the new one. If that failed, the old size may still fit.
  absl::Status kept = grown.ok() ? grown : block_.Reserve(held);
  if (kept.ok()) {
    kept.Update(CudaStatus(cudaMemcpy(block_.data(), contents.get(), held, cudaMemcpyHostToDevice),
                           "cudaMemcpy"));
    kept.Update(CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
  }
  if (kept.ok()) return grown;
  return absl::DataLossError(
      absl::StrCat(what_, " are lost, because other programs took the device's memory while ",
                   "they grew: ", kept.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableDevice>> CudaTableDevice::Create(const Options& options) {
  std::unique_ptr<CudaTableDevice> device(new CudaTableDevice(options));
  for (Stage& stage : device->stages_) {
    SLUICE_RETURN_IF_ERROR(stage.up.Create(/*timing=*/false));
    SLUICE_RETURN_IF_ERROR(stage.begin.Create(/*timing=*/true));
    SLUICE_RETURN_IF_ERROR(stage.end.Create(/*timing=*/true));
  }
  return device;
}

CudaTableDevice::~CudaTableDevice() {
  (void)cudaSetDevice(options_.ordinal);
  for (const Stream* stream : {options_.up, options_.compute})
    (void)cudaStreamSynchronize(stream->get());
}

std::unique_ptr<TableBlock> CudaTableDevice::NewBlock(const char* what) {
  return std::make_unique<CudaTableBlock>(options_, what);
}

size_t CudaTableDevice::BytesLeft() const {
  const size_t left = options_.memory->limit() - options_.memory->used();
  size_t there = 0, total = 0;
  if (cudaSetDevice(options_.ordinal) == cudaSuccess &&
      cudaMemGetInfo(&there, &total) == cudaSuccess) {
    return std::min(left, there);
  }
  (void)cudaGetLastError();  // so that the next call does not report it
  return left;
}

absl::Status CudaTableDevice::Reserve(Stage* stage, size_t bytes) {
  const absl::Status status = stage->device.Reserve(bytes);
  if (!absl::IsResourceExhausted(status) || !options_.make_room()) return status;
  return stage->device.Reserve(bytes);
}

absl::Status CudaTableDevice::Await(Stage* stage) {
  if (!stage->used) return absl::OkStatus();
  SLUICE_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(stage->end.get()));
  stage->used = false;
  float milliseconds = 0;
  SLUICE_RETURN_IF_CUDA_ERROR(
      cudaEventElapsedTime(&milliseconds, stage->begin.get(), stage->end.get()));
  // Relaxed, and not an atomic addition, because this thread alone adds.
  std::atomic<double>& busy = *options_.busy_seconds;
  busy.store(busy.load(std::memory_order_relaxed) + milliseconds * 1e-3, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status CudaTableDevice::Run(size_t bytes, absl::FunctionRef<void(char*)> fill,
                                  absl::FunctionRef<void(const char*, TableOps*)> launch) {
  SLUICE_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.ordinal));
  // Two stages in turn: one is filled while kernels still read the other.
  Stage& stage = stages_[next_++ % stages_.size()];
  SLUICE_RETURN_IF_ERROR(Await(&stage));
  SLUICE_RETURN_IF_ERROR(stage.pinned.Reserve(bytes));
  SLUICE_RETURN_IF_ERROR(Reserve(&stage, bytes));
  fill(stage.pinned.data());
  if (bytes > 0) {
    SLUICE_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(stage.device.data(), stage.pinned.data(), bytes,
                                                cudaMemcpyHostToDevice, options_.up->get()));
    SLUICE_RETURN_IF_ERROR(stage.up.Record(*options_.up));
    SLUICE_RETURN_IF_ERROR(stage.up.HoldBack(*options_.compute));
  }
  SLUICE_RETURN_IF_ERROR(stage.begin.Record(*options_.compute));
  CudaTableOps ops(options_.compute->get());
  launch(stage.device.data(), &ops);
  SLUICE_RETURN_IF_ERROR(ops.status());
  SLUICE_RETURN_IF_ERROR(stage.end.Record(*options_.compute));
  stage.used = true;
  return absl::OkStatus();
}

absl::Status CudaTableDevice::Download(const char* from, size_t bytes,
                                       absl::FunctionRef<void(const char*)> take) {
  SLUICE_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.ordinal));
  SLUICE_RETURN_IF_ERROR(down_.Reserve(bytes));
  SLUICE_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(down_.data(), from, bytes, cudaMemcpyDeviceToHost, options_.compute->get()));
  SLUICE_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(options_.compute->get()));
  take(down_.data());
  return absl::OkStatus();
}

}  // namespace sluice::cuda
