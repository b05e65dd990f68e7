// The CUDA backend of wide_deep on one device.
//
// A step: the batch goes up and its keys are sorted (step_inputs.h), beside the step before when it
// was announced; dense tensors and rows follow on the stream for copies; forward and backward run
// on the compute stream; each layer's weight gradient comes down on a stream of its own when its
// product ends; the call returns when all is down.
// Rows may be read by slot from a block that stays (MakeResidentRows), and parameters from Geo's
// local values (MakeGeoOptimizer), whose optimizer then runs here; graphs hold neither's address
// but that of the dense tensors.
//
// Invariants: the same batch gives the same bits on the same device. Not those of DenseNet: bits
// differ from the CPU's, a logit may differ in the last bits between batches, and gradient sums are
// not cut at chunks (README.md).
//
// Memory: device blocks bounded by options.device_memory_fraction, and pinned blocks; they grow
// with the largest batch seen, a steady state allocates nothing.
//
// Thread safety: one thread calls at a time; device_stats from any.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/net/cuda/cuda_device.h"
#include "model/net/cuda/cuda_memory.h"
#include "model/net/cuda/cuda_stream.h"
#include "model/net/cuda/loss_scaler.h"
#include "model/net/cuda/pinned_memory.h"
#include "model/net/cuda/table_device.h"
#include "model/net/dense_net.h"
#include "model/net/net_options.h"
#include "model/wide_deep/cuda/cuda_input_device.h"
#include "model/wide_deep/cuda/cuda_ops.h"
#include "model/wide_deep/cuda/graph_cache.h"
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
  absl::StatusOr<std::unique_ptr<ResidentRows>> MakeResidentRows(size_t capacity) override;
  absl::StatusOr<std::unique_ptr<GeoOptimizer>> MakeGeoOptimizer(
      const std::vector<const TableLayout*>& dense, const TableLayout* sparse,
      double clip_global_norm) override;
  std::shared_ptr<HostMemory> host_memory() override { return host_memory_; }
  DeviceStats device_stats() const override;
  std::string Describe() const override;

 private:
  CudaWideDeepNet(const WideDeepShape& shape, const NetOptions& options, MatmulPrecision precision,
                  CudaDeviceInfo device);
  absl::Status Prepare();
  // TrainStep and Forward, but that after a failure copies may still be under way.
  absl::Status Train(const NetInput& input, uint64_t seed, uint32_t epoch, NetGradients* gradients);
  absl::Status ForwardPass(const NetInput& input, float* logits);
  // Then nothing reads or writes the caller's memory.
  void AwaitStreams();
  // Room for work and output of a step, even if batches can go up no more ahead of their steps;
  // forgets the graphs when a block may move.
  absl::Status Reserve(const StepShape& shape);
  absl::Status ReserveBlocks(size_t work, size_t output);
  // dense: as StepMemory.
  absl::Status RunPhase(size_t phase, const StepShape& shape, const char* dense);
  // Bytes [begin, end) of the output come down when what is on `compute_` so far is done, then
  // arrivals_[i].down is reached.
  absl::Status Download(size_t i, size_t begin, size_t end);
  // All parts of training, with the downloads of what each makes final; on Geo's values, of the
  // result alone. rows: where the caller has the gradients of so many come down, null: with the
  // rest.
  absl::Status RunTraining(const StepShape& shape, const OutputLayout& out, const char* dense,
                           bool geo, float* rows, size_t num_rows);
  // The step on no examples.
  absl::Status ZeroGradients(const NetInput& input, NetGradients* gradients);
  // What a step on Geo's values leaves.
  void LeaveGradients(const OutputLayout& out, size_t num_rows, double scale);
  absl::StatusOr<std::unique_ptr<TableDevice>> MakeTableDevice(const char* advice);
  // Waits for the gradients that come down before the rest, takes each and tells `ready`.
  absl::Status TakeEarly(const OutputLayout& out, NetGradients* gradients);
  // Waits for the step, and counts its work: train_span_, and a sort that did not run ahead.
  absl::Status Synchronize(bool training);
  // After a step whose result is down: whether it may be used.
  absl::Status CheckOverflow(const StepResult& result, NetGradients* gradients);
  StepMemory memory(const char* dense) const {
    return {inputs_->data(), work_.data(), output_.data(), dense};
  }

  const WideDeepShape shape_;
  const NetOptions options_;
  const MatmulPrecision precision_;
  const CudaDeviceInfo device_;
  DeviceMemory device_memory_;  // before the blocks
  DeviceBlock constants_, work_, output_;
  PinnedBlock pinned_output_;
  const std::shared_ptr<PinnedMemory> host_memory_;
  std::array<size_t, 2> reserved_ = {0, 0};  // bytes of work and output that are there
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
  DeviceGradients left_;  // of the last step on Geo's values
  // Written by the calling thread, read by metrics; relaxed: figures, nothing is read through them.
  std::atomic<double> busy_seconds_{0}, loss_scale_{0};
  std::atomic<uint64_t> skipped_{0}, steps_ahead_{0};
  std::atomic<bool> no_room_ahead_{false};
};

}  // namespace sluice::cuda
