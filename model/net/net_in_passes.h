// Computes training steps in passes on a network that takes whole batches: each pass is a batch of
// its own, with the rows that it uses, and the gradients of the passes are added here.
//
// The gradient is the mean of the passes' gradients, weighted by their sums of weights, in double:
// it differs from that of one pass by roundings. A pass that overflows in FP16 skips the whole
// step, and the passes after it are not computed. Loss scaling counts passes, not steps.
//
// The copy of a pass, and its upload, overlap the pass before (Announce). Each pass adds to all
// elements of the dense tensors and to its rows. That takes about 2 ns an element on one core; all
// threads share the dense tensors, and one thread adds the rows.
//
// Memory: a copy of the examples of two passes, and all sums of a step in double.
//
// Thread safety: one thread, as DenseNet.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/net/aligned_array.h"
#include "model/net/dense_net.h"
#include "model/net/net_options.h"
#include "model/net/step_passes.h"

namespace sluice {

struct TableSizes {
  std::vector<size_t> dense;          // elements, by Model::dense_tables()
  std::vector<size_t> row_dims;       // by Model::sparse_tables()
  std::vector<uint32_t> slot_tables;  // by slot of a batch: its index in row_dims
};

class NetInPasses : public DenseNet {
 public:
  // Uses options.pass_examples, which is above 0, and options.threads.
  NetInPasses(std::unique_ptr<DenseNet> net, TableSizes sizes, const NetOptions& options);

  void Announce(ComingBatch next) override { announced_ = std::move(next); }
  // INVALID_ARGUMENT for values that stay where the network computes: only async and Geo have them.
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override;
  absl::Status Forward(const NetInput& input, float* logits) override {
    return net_->Forward(input, logits);
  }
  absl::Status EndEpoch(uint32_t epoch, const std::function<absl::Status()>& meanwhile) override {
    return net_->EndEpoch(epoch, meanwhile);
  }
  bool computes_in_passes() const override { return true; }
  std::shared_ptr<HostMemory> host_memory() override { return net_->host_memory(); }
  std::vector<MetricSum> TakeSums() override { return net_->TakeSums(); }
  absl::StatusOr<std::string> SaveState() const override { return net_->SaveState(); }
  void DropStep() override { net_->DropStep(); }
  absl::Status RestoreState(const std::string& state) override { return net_->RestoreState(state); }
  void Cancel() override { net_->Cancel(); }
  DeviceStats device_stats() const override { return net_->device_stats(); }
  std::string Describe() const override { return net_->Describe(); }

 private:
  // The examples of a pass as a batch of their own.
  struct Part {
    Batch batch;
    std::vector<uint32_t> row_index;          // into `rows` of the table of the key's slot
    std::vector<std::vector<uint32_t>> rows;  // by table: the rows of the step that the pass uses
    ComingBatch source;                       // the step's batch; `source.batch` only if announced
    const Batch* step = nullptr;
  };

  // num_rows: by table.
  std::shared_ptr<Part> Copy(const Batch& batch, const uint32_t* row_index,
                             const std::vector<size_t>& num_rows, const StepPass& pass);
  // Finds the rows that the part uses. row_index: of the part's first key.
  void NumberRows(const uint32_t* row_index, Part* part);
  // Copies the first pass of the announced batch.
  std::shared_ptr<Part> CopyAnnounced();
  // The first pass of `input`: the one that was copied ahead, or a new copy.
  std::shared_ptr<Part> First(const NetInput& input, const StepPass& pass);
  // Whether the tables of the batch's slots are known.
  bool HasSlots(const Batch& batch) const {
    return sizes_.row_dims.empty() || batch.num_slots == sizes_.slot_tables.size();
  }
  static ComingBatch ComingOf(const std::shared_ptr<Part>& part);
  absl::Status Check(const NetInput& input, const NetGradients& gradients) const;
  // Makes room for a pass's gradients and the sums, and sets those of the rows to 0.
  void BeginSums(const NetInput& input);
  absl::Status TrainPasses(const NetInput& input, const std::vector<StepPass>& passes,
                           uint64_t seed, uint32_t epoch, NetGradients* gradients);
  // Computes a pass and adds its gradients to the sums; the last one writes the dense gradients,
  // times `mean`.
  absl::Status TrainPass(const NetInput& input, const Part& part, SumPart place, double mean,
                         uint64_t seed, uint32_t epoch, NetGradients* gradients);
  absl::Status RunPass(const NetInput& input, const Part& part, uint64_t seed, uint32_t epoch,
                       NetGradients* pass);
  // sums += weight * values; the sums begin with 0 if `first`.
  void Add(const float* values, double weight, bool first, size_t n, double* sums) const;
  void AddRows(const Part& part, double weight);
  // out = sums * scale, rounded.
  void Round(const double* sums, double scale, size_t n, float* out) const;

  const std::unique_ptr<DenseNet> net_;
  const TableSizes sizes_;
  const size_t pass_examples_;
  const int threads_;
  ComingBatch announced_;
  std::shared_ptr<Part> ahead_;  // of the batch that was announced
  // By table and row of the step: its place in Part::rows.
  std::vector<std::vector<uint32_t>> place_;
  std::vector<HostArray> rows_, row_gradients_;  // of a pass, by table: [rows][row_dim]
  std::vector<std::vector<float>> pass_dense_;   // gradients of a pass
  std::vector<AlignedArray<double>> sums_;       // by dense tensor
  std::vector<AlignedArray<double>> row_sums_;   // by table: [U][row_dim]
};

}  // namespace sluice
