// The hidden layers of the deep part on the CPU: forward and backward by tiles of rows, weight
// gradients by blocks.
//
// Invariants: every product runs on tiles of exactly kTile rows (the last one padded with zeros),
// so a row's values do not depend on its batch. One thread computes a tile or a block of a
// gradient, so nothing depends on the number of threads. A weight gradient is f32 inside a piece of
// rows and double across pieces, rounded once. Memory: all rows' activations and their gradients;
// grows with Reserve, never shrinks. Thread safety: ForwardTile and BackwardTile for different
// tiles on different lanes at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "model/net/dropout.h"
#include "model/net/matmul.h"

namespace sluice {

// Rows [begin, end) of a batch whose products are summed in f32.
struct RowPiece {
  size_t begin = 0, end = 0;
};

class Mlp {
 public:
  static constexpr size_t kTile = 64;

  // widths: [inputs, hidden..., 1], at least one hidden layer. Without `input_gradient`
  // BackwardTile stops at the first layer's weights.
  static absl::StatusOr<std::unique_ptr<Mlp>> Create(std::vector<size_t> widths,
                                                     bool input_gradient, int threads);

  // Room for n rows; the contents are lost when it grows.
  void Reserve(size_t n);
  // Weights [in, out] and bias [out] of each layer, interleaved; borrowed until the next call.
  void SetWeights(const float* const* dense) { dense_ = dense; }
  float* input(size_t row) { return activations_[0].data() + row * widths_[0]; }
  // d loss / d input, after BackwardTile.
  const float* input_gradient(size_t row) const { return gradients_[0].data() + row * widths_[0]; }

  // Rows [tile * kTile, + n), n <= kTile, with inputs in place; zeroes the other inputs of the
  // tile. `ids` are the examples of the rows, null without dropout. out: [n], the last layer's
  // values.
  void ForwardTile(int lane, size_t tile, size_t n, const Dropout& dropout, const uint64_t* ids,
                   float* out);
  // output_gradient: [n], of the rows of the tile. REQUIRES: ForwardTile on the tile, same dropout.
  void BackwardTile(int lane, size_t tile, size_t n, const Dropout& dropout,
                    const float* output_gradient);

  // Weight and bias gradients of `rows` rows (at least 1), times `scale`, to out, interleaved like
  // the weights. `pieces` cut the rows; empty: one product over all of them. output_gradient:
  // [rows].
  absl::Status WeightGradients(size_t rows, const std::vector<RowPiece>& pieces, double scale,
                               const float* output_gradient, float* const* out);

 private:
  // What one thread computes at a time: up to kTile inputs' weights to all units of a layer, the
  // biases of up to kTile units, or the output layer.
  struct Job {
    enum Kind { kWeights, kBias, kOutput } kind;
    size_t layer, begin, end;
  };

  Mlp(std::vector<size_t> widths, bool input_gradient, int threads);
  absl::Status CreatePlans();
  // Plans of odd shapes (a short last batch) are kept too; all are dropped when they pile up.
  absl::StatusOr<Matmul*> Plan(const Matmul::Shape& shape);
  absl::Status PlanWeightGradients(const std::vector<RowPiece>& pieces);
  void WeightJob(int lane, const Job& job, const std::vector<RowPiece>& pieces, double scale,
                 float* out);
  void BiasJob(const Job& job, size_t rows, double scale, float* out) const;
  void OutputJob(const Job& job, size_t rows, double scale, const float* output_gradient,
                 float* weight, float* bias) const;

  const std::vector<size_t> widths_;
  const bool input_gradient_;
  const int threads_;
  const float* const* dense_ = nullptr;
  size_t capacity_ = 0;  // rows, a multiple of kTile
  std::vector<std::vector<float>>
      activations_;  // [level][capacity][widths_[level]], the output excluded
  std::vector<std::vector<float>> gradients_;  // same shapes: d loss / d (values before ReLU)
  std::vector<std::unique_ptr<Matmul>> forward_, backward_;  // by layer, the output layer excluded
  std::map<Matmul::Shape, std::unique_ptr<Matmul>> plans_;
  std::vector<Matmul*> step_plans_;          // of this step: [layer][full block, last block][piece]
  std::vector<Job> jobs_;                    // constant
  std::vector<RowPiece> whole_;              // [1], for calls without pieces
  std::vector<std::vector<float>> product_;  // [lane][kTile][widest]
  std::vector<std::vector<double>> sum_;     // [lane][kTile][widest]
};

}  // namespace sluice
