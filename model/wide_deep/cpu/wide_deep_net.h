// The CPU backend of wide_deep: embedding lookup, wide sum, MLP (oneDNN), loss, and their
// gradients.
//
// A step of several passes keeps its sums in double from pass to pass, and scales and rounds them
// at the end.
//
// Invariants: those of DenseNet; no result depends on the number of threads.
//
// Memory: activations of the largest pass or forward pass seen. Sums of rows in double; with
// several passes, also those of all dense tensors. A steady state allocates neither.
//
// Thread safety: one thread calls; it works with `threads` OpenMP threads.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/net/dense_net.h"
#include "model/net/mlp.h"
#include "model/net/step_passes.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice {

class WideDeepNet : public DenseNet {
 public:
  // `pass_examples`: as in NetOptions. INVALID_ARGUMENT if the shape has a deep part without
  // inputs, or a dropout outside [0, 1).
  static absl::StatusOr<std::unique_ptr<DenseNet>> Create(WideDeepShape shape, int threads,
                                                          size_t max_batch,
                                                          size_t pass_examples = 0);

  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override;
  absl::Status Forward(const NetInput& input, float* logits) override;
  bool computes_in_passes() const override { return true; }

 private:
  // One pass of a step. Arrays by row and tiles begin with its first example.
  struct Pass {
    StepPass examples;
    SumPart part;
    double first_scale = 1, scale = 1;  // of the errors, and of their sums at the end
    bool cut = false;                   // sums are cut into pieces, in double across them
  };

  // Neighbouring slots [begin, end) whose rows are in the same table. With one table, all slots.
  struct SlotRun {
    size_t begin, end;
    size_t table, row_dim, dim;  // dim: of the embedding
    size_t embedding_begin;      // in a row; 1 behind a weight of the wide part, else 0
    // The rows of this step, and the embedding of the first one.
    const float* values = nullptr;
    const float* embeddings = nullptr;
  };
  // The rows [begin, end) of a table that one thread adds to. sums: [U][row_dim].
  template <typename Sum>
  struct OwnRows {
    Sum* sums;
    size_t begin, end;
  };

  WideDeepNet(WideDeepShape shape, int threads, size_t pass_examples);
  static std::vector<SlotRun> RunsOf(const WideDeepShape& shape);
  void SetRows(const NetInput& input);  // in runs_
  void Reserve(size_t n);
  // Adds the pass to the sums; the last one makes the gradients.
  absl::Status TrainPass(const NetInput& input, const Dropout& dropout, const Pass& pass,
                         NetGradients* gradients);
  // Writes the logits of rows [row, row + n) of the pass to logits[row], and on.
  // REQUIRES: row is a multiple of Mlp::kTile.
  void ForwardRows(int lane, const NetInput& input, const StepPass& pass, size_t row, size_t n,
                   const Dropout& dropout, const uint64_t* ids, float* logits);
  // Sum of bias, weighted numbers and wide weights of one example, in double.
  double WideLogit(const NetInput& input, size_t example) const;
  void DeepInput(const NetInput& input, size_t example, float* to) const;  // [deep_inputs]
  // Pools the keys [begin, end) of a weighted slot into to[dim of the run].
  void PoolWeighted(const NetInput& input, const SlotRun& run, size_t slot, uint32_t begin,
                    uint32_t end, float* to) const;
  // The factor for all weights of a weighted slot: 1 for SUM, 1 / (their sum) for MEAN.
  float ShareOf(const NetInput& input, size_t slot, uint32_t begin, uint32_t end) const;
  // Computes the loss of one example, and d loss / d logit times `scale`.
  void Loss(const Batch& batch, size_t example, size_t row, double scale);
  // rows_of(run): values or sums by row of the run's table.
  template <typename RowsOf>
  void PrefetchRows(const NetInput& input, size_t example, const RowsOf& rows_of) const;

  void WideGradients(const NetInput& input, const Pass& pass, NetGradients* gradients);
  void RowGradients(const NetInput& input, const Pass& pass, NetGradients* gradients);
  // The rows that belong to a thread, by table. sums: by table.
  template <typename Sum>
  std::vector<OwnRows<Sum>> OwnOf(const NetInput& input, size_t thread,
                                  const std::vector<Sum*>& sums) const;
  // Adds to the gradients of a thread's rows, in type `Sum` in key order. own: by table.
  template <typename Sum>
  void AddRows(const NetInput& input, const Pass& pass, const std::vector<OwnRows<Sum>>& own) const;
  template <typename Sum>
  void AddExample(const NetInput& input, size_t example, size_t pass_row,
                  const std::vector<OwnRows<Sum>>& own) const;

  const WideDeepShape shape_;
  const int threads_;
  const size_t pass_examples_;            // at most; 0: no bound
  const size_t first_wide_;               // index of the first wide tensor in dense
  const bool embedded_;                   // the deep part has embeddings
  const bool any_wide_;                   // some rows have a weight of the wide part
  const std::vector<size_t> elements_;    // of each dense tensor
  std::vector<SlotRun> runs_;             // of slots whose rows have values, in order
  std::unique_ptr<Mlp> mlp_;              // null without a deep part
  std::vector<float> logits_, d_logits_;  // [rows of the pass]
  std::vector<double> losses_;            // the same, weighted
  std::vector<double> wide_sums_;         // of the weights of numbers, and of the bias
  // By table: [U][row_dim] or more; all zero between steps.
  std::vector<std::vector<double>> row_sums_;
  std::vector<RowPiece> pieces_;
};

}  // namespace sluice
