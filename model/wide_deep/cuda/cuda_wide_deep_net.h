// The CUDA backend of wide_deep on one device.
//
// A step has these stages:
// - The batch is uploaded and its keys are sorted (step_inputs.h). An announced batch does this
//   while the step before it computes.
// - Dense tensors and rows follow on the stream for copies.
// - Forward and backward pass run on the compute stream.
// - Each layer's weight gradient is downloaded on a separate stream once its product has ended.
// - The call returns when all downloads are done.
//
// Rows may stay on the device and be read by slot (MakeResidentRows). Parameters may be Geo's local
// values (MakeGeoOptimizer), whose optimizer then also runs on the device. Graphs hold the address
// of the dense tensors, but not the addresses of resident rows and of Geo's rows.
//
// Invariants: The same batch gives the same bits on the same device. The invariants of DenseNet do
// not hold: bits differ from the CPU's, a logit may differ in the last bits between batches, and
// gradient sums are not cut at chunks (README.md).
//
// Memory: Device blocks, bounded by options.device_memory_fraction, and pinned blocks. They grow
// with the largest batch seen; a steady state allocates nothing.
//
// Thread safety: one thread calls at a time; device_stats may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cuda/cuda_memory.h"
#include "common/cuda/cuda_stream.h"
#include "model/net/cuda/cuda_device.h"
#include "model/net/cuda/pinned_memory.h"
#include "model/net/cuda/table_device.h"
#include "model/net/dense_net.h"
#include "model/net/net_options.h"
#include "model/wide_deep/cuda/cuda_input_device.h"
#include "model/wide_deep/cuda/cuda_ops.h"
#include "model/wide_deep/cuda/graph_cache.h"
#include "model/wide_deep/cuda/loss_scaler.h"
#include "model/wide_deep/cuda/step_inputs.h"
#include "model/wide_deep/cuda/step_program.h"

namespace sluice::cuda {

class CudaWideDeepNet : public DenseNet {
 public:
  // As CreateCudaNet (cuda_net.h).
  static absl::StatusOr<std::unique_ptr<DenseNet>> Create(const WideDeepShape& shape,
                                                          const NetOptions& options);
  ~CudaWideDeepNet() override;

  void Announce(ComingBatch next) override { inputs_->Announce(std::move(next)); }
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override;
  absl::Status Forward(const NetInput& input, float* logits) override;
  absl::StatusOr<std::unique_ptr<ResidentRows>> MakeResidentRows(size_t table,
                                                                 size_t capacity) override;
  absl::StatusOr<std::unique_ptr<GeoOptimizer>> MakeGeoOptimizer(
      const std::vector<const TableLayout*>& dense, const std::vector<const TableLayout*>& sparse,
      double clip_global_norm) override;
  std::shared_ptr<HostMemory> host_memory() override { return host_memory_; }
  absl::StatusOr<std::string> SaveState() const override;
  absl::Status RestoreState(const std::string& state) override;
  DeviceStats device_stats() const override;
  std::string Describe() const override;

 private:
  CudaWideDeepNet(const WideDeepShape& shape, const NetOptions& options, MatmulPrecision precision,
                  CudaDeviceInfo device);
  absl::Status Prepare();
  // TrainStep and Forward, except that copies may still be under way after a failure.
  absl::Status Train(const NetInput& input, uint64_t seed, uint32_t epoch, NetGradients* gradients);
  absl::Status ForwardPass(const NetInput& input, float* logits);
  // Waits until no copy reads or writes the caller's memory.
  void AwaitStreams();
  // Makes room for the work and output of a step, if need be by giving back the block for batches
  // ahead. Drops the graphs if a block may move.
  absl::Status Reserve(const StepShape& shape);
  absl::Status ReserveBlocks(size_t work, size_t output);
  // dense: as in StepMemory.
  absl::Status RunPhase(size_t phase, const StepShape& shape, const char* dense);
  // Downloads bytes [begin, end) of the output once the work on `compute_` so far is done, and then
  // records arrivals_[i].down.
  absl::Status Download(size_t i, size_t begin, size_t end);
  // Launches all parts of training and, after each part, the download of the gradients that it
  // makes final; on Geo's values only the result is downloaded. rows: where the gradients of
  // `num_rows` rows are downloaded to directly; null: to the pinned output, like all others.
  absl::Status RunTraining(const StepShape& shape, const OutputLayout& out, const char* dense,
                           bool geo, float* rows, size_t num_rows);
  // The step on a batch without examples.
  absl::Status ZeroGradients(const NetInput& input, NetGradients* gradients);
  // Tells Geo's values where the step has left its gradients.
  void LeaveGradients(const OutputLayout& out, size_t num_rows, double scale);
  absl::StatusOr<std::unique_ptr<TableDevice>> MakeTableDevice(const char* advice);
  // Waits for each gradient that is downloaded before the last part, copies it to the caller and
  // calls `ready`.
  absl::Status TakeEarly(const OutputLayout& out, NetGradients* gradients);
  // Waits for the step and adds its time to busy_seconds_: train_span_, and the sort unless it ran
  // ahead.
  absl::Status Synchronize(bool training);
  // Puts the scaler's figures where device_stats finds them.
  void PublishScale();
  // Updates the loss scale from the downloaded result, and sets gradients->skipped if the step
  // overflowed.
  absl::Status CheckOverflow(const StepResult& result, NetGradients* gradients);
  StepMemory memory(const char* dense) const {
    return {inputs_->data(), work_.data(), output_.data(), dense};
  }

  const WideDeepShape shape_;
  const NetOptions options_;
  const MatmulPrecision precision_;
  const CudaDeviceInfo device_;
  DeviceMemory device_memory_;  // declared before the blocks, which give memory back to it
  DeviceBlock constants_, work_, output_;
  PinnedBlock pinned_output_;
  const std::shared_ptr<PinnedMemory> host_memory_;
  std::array<size_t, 2> reserved_ = {0, 0};  // bytes of work_ and output_
  Stream compute_, up_, down_;
  Span train_span_;
  struct Arrival {
    Event computed, down;
  };
  std::vector<std::unique_ptr<Arrival>> arrivals_;  // by part of training
  std::unique_ptr<CudaOps> ops_;
  std::unique_ptr<StepProgram> program_;
  std::unique_ptr<CudaInputDevice> input_device_;
  std::unique_ptr<StepInputs> inputs_;
  GraphCache graphs_;
  LossScaler scaler_;
  DeviceGradients left_;  // by the last step on Geo's values
  // Written by the calling thread and read by metrics. Relaxed: each figure stands alone and
  // publishes no other memory.
  std::atomic<double> busy_seconds_{0}, loss_scale_{0};
  std::atomic<uint64_t> skipped_{0}, steps_ahead_{0};
  std::atomic<bool> no_room_ahead_{false};
};

}  // namespace sluice::cuda
