// The CPU backend of wide_deep: embedding lookup, wide sum, MLP (oneDNN), loss, and their
// gradients.
//
// Invariants: those of DenseNet; no result depends on the number of threads.
//
// Memory: grows with the largest batch seen; a steady state allocates nothing here.
//
// Thread safety: one thread calls; it works with `threads` OpenMP threads.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/net/dense_net.h"
#include "model/net/mlp.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice {

class WideDeepNet : public DenseNet {
 public:
  // INVALID_ARGUMENT if the shape has a deep part without inputs, or a dropout outside [0, 1).
  static absl::StatusOr<std::unique_ptr<DenseNet>> Create(WideDeepShape shape, int threads,
                                                          size_t max_batch);

  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override;
  absl::Status Forward(const NetInput& input, float* logits) override;

 private:
  WideDeepNet(WideDeepShape shape, int threads);
  void Reserve(size_t n);
  // Writes the logits of the tile's examples to logits[first example of the tile], and on.
  void ForwardTile(int lane, const NetInput& input, size_t tile, const Dropout& dropout,
                   const uint64_t* ids, float* logits);
  // Sum of bias, weighted numbers and wide weights of one example, in double.
  double WideLogit(const NetInput& input, size_t example) const;
  void DeepInput(const NetInput& input, size_t example, float* to) const;  // [deep_inputs]
  // Computes the loss of one example, and d loss / d logit times `scale`.
  void Loss(const Batch& batch, size_t example, double scale);
  void PrefetchRows(const NetInput& input, size_t example) const;

  void WideGradients(const NetInput& input, double scale, NetGradients* gradients) const;
  // Gradients of rows [begin, end) of the sparse table, summed in type `Sum` in key order.
  template <typename Sum>
  void RowGradients(const NetInput& input, size_t begin, size_t end, double scale, Sum* sums,
                    float* out) const;
  template <typename Sum>
  void AddExample(const NetInput& input, size_t example, size_t begin, size_t end, Sum* sums) const;

  const WideDeepShape shape_;
  const int threads_;
  const size_t row_dim_, first_wide_;     // index of the first wide tensor in dense
  const std::vector<size_t> elements_;    // of each dense tensor
  std::unique_ptr<Mlp> mlp_;              // null without a deep part
  std::vector<float> logits_, d_logits_;  // [batch]
  std::vector<double> losses_;            // [batch], weighted
  std::vector<double> row_sums_;          // [U][row_dim]
  std::vector<RowPiece> pieces_;
};

}  // namespace sluice
