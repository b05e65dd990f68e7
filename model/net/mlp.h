// The hidden layers of the deep part on the CPU: forward and backward by tiles of rows.
//
// Invariants: every product runs on tiles of exactly kTile rows (the last one padded with zeros),
// so a row's values do not depend on its batch. One thread computes a tile, so nothing depends on
// the number of threads. Sums of weight gradients: weight_gradients.h; those of biases and of the
// output layer are double, by tile. With bf16 the operands of the products of a training step are
// rounded to bf16; sums, activations, the output layer and everything between are f32, and so is a
// forward pass alone. Memory: all rows' activations
// and their gradients; grows with Reserve, never shrinks. Thread safety: ForwardTile and
// BackwardTile for different tiles on different lanes at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "model/net/aligned_array.h"
#include "model/net/dropout.h"
#include "model/net/layer_loops.h"
#include "model/net/matmul.h"
#include "model/net/weight_gradients.h"

namespace sluice {

class Mlp {
 public:
  static constexpr size_t kTile = 64;

  // widths: [inputs, hidden..., 1], at least one hidden layer. Without `input_gradient`
  // BackwardTile stops at the first layer's weights.
  static absl::StatusOr<std::unique_ptr<Mlp>> Create(std::vector<size_t> widths,
                                                     bool input_gradient, bool bf16, int threads);

  // Room for n rows; the contents are lost when it grows.
  void Reserve(size_t n);
  // Weights [in, out] and bias [out] of each layer, interleaved; borrowed until the next call.
  // Packs them into the layout of the products. Without `training` only ForwardTile may follow.
  void SetWeights(const float* const* dense, bool training);
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
  // the weights. `pieces` cut the rows; without them `scale` is 1. `ready` (may be empty): see
  // NetGradients; called for the hidden layers' weights.
  absl::Status Gradients(size_t rows, const std::vector<RowPiece>& pieces, double scale,
                         float* const* out, const std::function<void(size_t)>& ready);

 private:
  Mlp(std::vector<size_t> widths, bool input_gradient, bool bf16, int threads);
  absl::Status CreatePlans();
  // Rows of a level from `row` on, as operands of products.
  const void* ActivationOperand(size_t level, size_t row) const;
  const void* GradientOperand(size_t level, size_t row) const;
  void RoundOperand(const AlignedArray<float>& from, AlignedArray<uint16_t>* to, size_t level,
                    size_t row) const;
  // Sums of tiles to bias gradients, and to the output layer's gradients.
  void SumTiles(size_t tiles, double scale, float* const* out);

  const std::vector<size_t> widths_;
  const size_t last_;  // the output layer, and the level it reads
  const bool input_gradient_, bf16_;
  const int threads_;
  const LayerLoops& loops_;
  const float* const* dense_ = nullptr;
  bool half_ = false;    // operands of the present step are bf16
  size_t capacity_ = 0;  // rows, a multiple of kTile
  // By level, the output excluded: [capacity][widths_[level]]. Gradients: d loss / d (values before
  // ReLU).
  std::vector<AlignedArray<float>> activations_, gradients_;
  std::vector<AlignedArray<uint16_t>> half_activations_, half_gradients_;  // bf16 only
  // By layer, the output layer excluded; half_forward_: bf16 only.
  std::vector<std::unique_ptr<Matmul>> forward_, half_forward_, backward_;
  std::vector<AlignedArray<char>> packed_forward_, packed_backward_;
  // [tiles][tile_sums_size_]: sums over the rows of a tile of the bias gradients of each hidden
  // layer, then of the output layer's weights and bias.
  AlignedArray<double> tile_sums_;
  size_t tile_sums_size_ = 0;
  std::vector<double> total_;  // [tile_sums_size_]
  WeightGradients weights_;
  std::vector<WeightGradients::Layer> weight_layers_;
};

}  // namespace sluice
