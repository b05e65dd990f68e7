// The compute backend: forward and backward of one batch from pulled values. CPU (oneDNN) is the
// reference; CUDA stands behind the same interface (cuda/README.md says what it does not keep).
//
// Invariants of the CPU backend: the logit of an example has the same bits whatever batch it is in.
// Gradient sums are cut at multiples of batch.chunk positions (f32 inside a chunk, double across),
// so that a global batch split in any way at those borders adds the same numbers. Thread safety:
// one thread; device_stats from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/features/batch.h"
#include "model/net/geo_values.h"
#include "model/net/host_memory.h"
#include "model/net/resident_rows.h"

namespace sluice {

class TableLayout;

// Values of one step. B = batch.n, K = batch.keys.size(), U = unique rows.
struct NetInput {
  const Batch* batch = nullptr;
  const uint32_t* row_index = nullptr;  // [K]: row of each key
  const float* rows = nullptr;          // [U][dim of the sparse table]
  size_t num_rows = 0;                  // U
  // When set, `rows` is not read: row u is what lies in slot slots[u] of `resident`, which this
  // network made.
  const ResidentRows* resident = nullptr;
  const uint32_t* slots = nullptr;  // [U], no slot twice
  // When set, neither `rows` nor `dense` is read: the step computes on the local values of `geo`,
  // which this network made, row u in slots[u]. Gradients of training stay there for
  // GeoValues::Update: NetGradients' rows and dense are not set, `ready` is not called.
  const GeoValues* geo = nullptr;
  std::vector<const float*> dense;  // by Model::dense_tables(), each [elements]
};

// A batch that will be trained: all of it but values.
struct ComingBatch {
  std::shared_ptr<const Batch> batch;   // null: none. Does not change while it is held.
  const uint32_t* row_index = nullptr;  // [K]; lives as long as `batch`
  size_t num_rows = 0;                  // U
};

// Gradients of the weighted mean loss over the batch (zeros when all weights are 0).
struct NetGradients {
  float* rows = nullptr;      // [U][dim]
  std::vector<float*> dense;  // by Model::dense_tables()
  double loss_sum = 0;        // sum of weight x log loss
  double weight_sum = 0;      // n_w; set before the first `ready`
  // The step overflowed in FP16 and must not be used: sums are 0, gradients are not set, `ready`
  // was not called.
  bool skipped = false;
  // When set: called with i as soon as dense[i] is final, while others are still being computed, on
  // a thread of the net. Not for every i: what it was not called for is final when the step ends.
  std::function<void(size_t i)> ready;
};

// What a device has done for a network; zeros on the CPU.
struct DeviceStats {
  double busy_seconds = 0;     // kernels of this network; neither copies, nor waits for them, nor
                               // what runs beside a step
  uint64_t bytes_in_use = 0;   // device memory held
  uint64_t bytes_limit = 0;    // its bound
  uint64_t skipped_steps = 0;  // that overflowed
  double loss_scale = 0;       // 0: not FP16
  uint64_t steps_ahead = 0;    // whose batch went up beside the step before
  bool no_room_ahead = false;  // device memory is short: batches no longer go up ahead; stays true
};

class DenseNet {
 public:
  virtual ~DenseNet() = default;
  // Says which batch the TrainStep after the next one is given, so that a device may bring it up
  // while the next one computes (CPU: nothing). The network knows it again by its addresses, and
  // holds `batch` until a later step, so that they stay its own. A hint: without it, or when
  // another batch follows, results are the same. What fails ahead is not reported: the batch's own
  // step does it again, and reports it.
  virtual void Announce(ComingBatch next) { (void)next; }
  // Dropout masks are a function of (seed, epoch, example_id, layer, unit).
  virtual absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                                 NetGradients* gradients) = 0;
  // logits: [B]. No dropout.
  virtual absl::Status Forward(const NetInput& input, float* logits) = 0;
  // Room for `capacity` rows beside the network. Null where values lie in the caller's memory
  // anyway (CPU). RESOURCE_EXHAUSTED names wanted and limit.
  virtual absl::StatusOr<std::unique_ptr<ResidentRows>> MakeResidentRows(size_t capacity) {
    (void)capacity;
    return nullptr;
  }
  // Geo's local values where the network computes; null where that is the caller's memory anyway
  // (CPU). Layouts: of Model::dense_tables(), and of the sparse table or null; they outlive the
  // values, which end before the network. Gradients are clipped to `clip_global_norm` when above 0.
  // INVALID_ARGUMENT when a layout is not of this network, RESOURCE_EXHAUSTED names wanted and
  // limit.
  virtual absl::StatusOr<std::unique_ptr<GeoValues>> MakeGeoValues(
      const std::vector<const TableLayout*>& dense, const TableLayout* sparse,
      double clip_global_norm) {
    (void)dense, (void)sparse, (void)clip_global_norm;
    return nullptr;
  }
  // Where `rows` of inputs and gradients lie best; elsewhere they are copied on the host. Null:
  // anywhere (CPU).
  virtual std::shared_ptr<HostMemory> host_memory() { return nullptr; }
  virtual DeviceStats device_stats() const { return {}; }
  // One line for the log: where it computes.
  virtual std::string Describe() const { return "cpu"; }
};

// This processor multiplies bf16 in hardware (AVX512_BF16).
bool HasBf16Instructions();

}  // namespace sluice
