// The compute backend: runs forward and backward of one batch on pulled values.
//
// The CPU backend (oneDNN) is the reference; CUDA implements the same interface (cuda/README.md
// lists the invariants that it does not keep).
//
// Invariants: in the CPU backend, the logit of an example has the same bits in every batch.
// Gradient sums are cut at multiples of batch.chunk positions (f32 inside a chunk, double across),
// so a global batch adds the same numbers however it is split at those positions. A step in passes
// (NetOptions::pass_examples) is equal to the bit to one without if its passes end there and at
// multiples of 64 examples.
//
// Thread safety: one thread. device_stats is safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/features/batch.h"
#include "model/net/geo_optimizer.h"
#include "model/net/host_memory.h"

namespace sluice {

class TableLayout;

// Rows of one sparse table that stay in numbered slots where a network computes.
//
// A step uploads only the rows that are not there. The caller decides which key is in which slot.
// When RowsInput::resident is set, a step reads its rows from slots instead of RowsInput::values.
// The network that made the rows outlives them.
//
// Thread safety: one thread. It is the network's thread.
class ResidentRows {
 public:
  virtual ~ResidentRows() = default;
  virtual size_t capacity() const = 0;  // slots
  // Writes row i of values, [n][dim of the table], to slots[i]; no slot occurs twice. The
  // next step reads these values. The caller may reuse `values` and `slots` after the return.
  // OUT_OF_RANGE when a slot is not below the capacity.
  virtual absl::Status Write(const uint32_t* slots, size_t n, const float* values) = 0;
};

// The rows of one sparse table in a step: U different ones.
struct RowsInput {
  const float* values = nullptr;  // [U][dim of the table]
  size_t n = 0;                   // U
  // When set, `values` is not read: row u is in slot slots[u] of `resident`, which this network
  // made.
  const ResidentRows* resident = nullptr;
  const uint32_t* slots = nullptr;  // [U], no slot twice
};

// Values of one step. B = batch.n, K = batch.keys.size().
struct NetInput {
  const Batch* batch = nullptr;
  // [K]: the row of each key among those of the table of its slot.
  const uint32_t* row_index = nullptr;
  std::vector<RowsInput> rows;  // by Model::sparse_tables()
  uint64_t step = 0;            // training: steps of this rank in the epoch before this one
  // When set, neither values of `rows` nor `dense` are read. The step computes on the local values
  // of `geo`, which this network made, with row u in slots[u]. Gradients of training stay there for
  // GeoOptimizer::Update: NetGradients' rows and dense are not set, and `ready` is not called.
  const GeoOptimizer* geo = nullptr;
  std::vector<const float*> dense;  // by Model::dense_tables(), each [elements]
};

// A batch that will be trained, without its values.
struct ComingBatch {
  std::shared_ptr<const Batch> batch;   // null: none. Must not change while it is held.
  const uint32_t* row_index = nullptr;  // [K]; lives as long as `batch`
  std::vector<size_t> num_rows;         // by Model::sparse_tables()
};

// What a network says of a step in addition to its loss.
struct LoggedValue {
  std::string name;
  double value = 0;
};

// A sum over evaluated examples that a network makes in addition to ours, and what it is divided
// by.
struct MetricSum {
  std::string name;
  double sum = 0, weight = 0;
};

// Gradients of the weighted mean loss over the batch (zeros when all weights are 0).
struct NetGradients {
  std::vector<float*> rows;   // by Model::sparse_tables(): [U][dim]
  std::vector<float*> dense;  // by Model::dense_tables()
  double loss_sum = 0;        // sum of weight x log loss
  double weight_sum = 0;      // n_w; set before the first `ready`
  // The step overflowed in FP16 and must not be used: sums are 0, gradients are not set, and
  // `ready` was not called.
  bool skipped = false;
  std::vector<LoggedValue> logged;
  // The user's program has left its loop: it has not made this step, and makes no other one.
  bool ends_training = false;
  // When set, it is called with i on a thread of the net as soon as dense[i] is final, while others
  // are still being computed. It is not called for every i: the others are final when the step
  // ends.
  std::function<void(size_t i)> ready;
};

// The use of a device by a network; zeros on the CPU.
struct DeviceStats {
  double busy_seconds = 0;     // of this network's kernels; without copies, waits for them, and
                               // kernels that overlap a step
  uint64_t bytes_in_use = 0;   // device memory held
  uint64_t bytes_limit = 0;    // limit of the device memory
  uint64_t skipped_steps = 0;  // steps that overflowed
  double loss_scale = 0;       // 0: not FP16
  uint64_t steps_ahead = 0;    // steps whose batch was copied during the previous step
  bool no_room_ahead = false;  // device memory is short: no batch is copied ahead from now on
};

class DenseNet {
 public:
  virtual ~DenseNet() = default;
  // Names the batch of the TrainStep after the next one, so that a device can copy it while the
  // next one computes (the CPU does nothing). The network recognizes the batch by its addresses,
  // and holds `batch` until a later step so that no other batch gets them. This is a hint: without
  // it, or when another batch follows, results are the same. An error while copying ahead is not
  // reported: the batch's own step copies again and reports it.
  virtual void Announce(ComingBatch next) { (void)next; }
  // Dropout masks are a function of (seed, epoch, example_id, layer, unit).
  virtual absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                                 NetGradients* gradients) = 0;
  // Whether TrainStep itself keeps to NetOptions::pass_examples. Model::CreateNet gives other
  // networks parts of a step instead, and adds up their gradients (net_in_passes.h).
  virtual bool computes_in_passes() const { return false; }
  // Writes the logits, [B], without dropout.
  virtual absl::Status Forward(const NetInput& input, float* logits) = 0;
  // Returns the sums of the calls of Forward since the last call, in the order of their names'
  // first use.
  virtual std::vector<MetricSum> TakeSums() { return {}; }
  // The training of an epoch has ended on this rank, and the scheduler does not know it yet. A
  // network that belongs to a program waits here for what the program does at this point, which may
  // be long, and calls `meanwhile` several times a second; if that fails, its error is the result.
  virtual absl::Status EndEpoch(uint32_t epoch, const std::function<absl::Status()>& meanwhile) {
    (void)epoch, (void)meanwhile;
    return absl::OkStatus();
  }
  // Makes room for `capacity` rows of a sparse table (index in Model::sparse_tables()) where the
  // network computes. Null where it computes in the caller's memory anyway (CPU).
  // RESOURCE_EXHAUSTED names wanted and limit.
  virtual absl::StatusOr<std::unique_ptr<ResidentRows>> MakeResidentRows(size_t table,
                                                                         size_t capacity) {
    (void)table, (void)capacity;
    return nullptr;
  }
  // Makes Geo's local values where the network computes. Null where it computes in the caller's
  // memory anyway (CPU). The layouts are those of Model::dense_tables() and sparse_tables().
  // Layouts and network outlive the values. Gradients are clipped to `clip_global_norm` if it is
  // above 0. INVALID_ARGUMENT when a layout is not of this network; RESOURCE_EXHAUSTED names wanted
  // and limit.
  virtual absl::StatusOr<std::unique_ptr<GeoOptimizer>> MakeGeoOptimizer(
      const std::vector<const TableLayout*>& dense, const std::vector<const TableLayout*>& sparse,
      double clip_global_norm) {
    (void)dense, (void)sparse, (void)clip_global_norm;
    return nullptr;
  }
  // The best memory for `rows` of inputs and gradients; rows elsewhere are copied once more on the
  // host. Null when any memory is equally good (CPU).
  virtual std::shared_ptr<HostMemory> host_memory() { return nullptr; }
  // Returns the state that training needs in addition to the values, such as the loss scale of
  // FP16, for a checkpoint after the last step. Empty: none. May wait for something outside of the
  // network, as TrainStep may. An error: there is a state, and it cannot be had.
  virtual absl::StatusOr<std::string> SaveState() const { return std::string(); }
  // The last TrainStep does not count, and no other follows: SaveState is that of before it.
  virtual void DropStep() {}
  // Restores the result of SaveState, before the first step. A network without such a state ignores
  // it. INVALID_ARGUMENT when `state` is not one.
  virtual absl::Status RestoreState(const std::string& state) {
    (void)state;
    return absl::OkStatus();
  }
  // The job is taken away: a step that waits for something outside of the network returns CANCELLED
  // soon, and so does a later one. Safe from any thread.
  virtual void Cancel() {}
  virtual DeviceStats device_stats() const { return {}; }
  // Says where the network computes, in one line for the log.
  virtual std::string Describe() const { return "cpu"; }
};

}  // namespace sluice
