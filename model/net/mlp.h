// Computes the layers of a multilayer perceptron on the CPU, forward and backward, by tiles of
// rows.
//
// weight_gradients.h sums the weight gradients; the sums of the biases and of the output layer are
// double, by tile. With bf16 a training step rounds the operands of its products to bf16. Sums,
// activations, the output layer and everything between stay f32, and so does a forward pass alone.
//
// Invariants: every product runs on tiles of exactly kTile rows (the last one padded with zeros),
// so a row's values do not depend on its batch. One thread computes a tile, so nothing depends on
// the number of threads.
//
// Memory: the activations of all rows and their gradients. Grows with Reserve and never shrinks.
//
// Thread safety: one thread. ForwardTile and BackwardTile may run at the same time for different
// tiles on different lanes.
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

  // `widths` is [inputs, hidden..., 1], with at least one hidden layer. Without `input_gradient`
  // BackwardTile stops at the first layer's weights.
  static absl::StatusOr<std::unique_ptr<Mlp>> Create(std::vector<size_t> widths,
                                                     bool input_gradient, bool bf16, int threads);

  // Makes room for n rows; growing loses the contents.
  void Reserve(size_t n);
  // Weights [in, out] and bias [out] of each layer, interleaved; borrowed until the next call.
  // Packs them into the layout of the products. Without `training` only ForwardTile may follow.
  void SetWeights(const float* const* dense, bool training);
  float* input(size_t row) { return activations_[0].data() + row * widths_[0]; }
  // d loss / d input, after BackwardTile.
  const float* input_gradient(size_t row) const { return gradients_[0].data() + row * widths_[0]; }

  // Runs forward on the rows [tile * kTile, tile * kTile + n), n <= kTile, whose inputs are in
  // place. Zeroes the other inputs of the tile. `ids` are the examples of the rows, or null without
  // dropout. `out` [n] gets the last layer's values.
  void ForwardTile(int lane, size_t tile, size_t n, const Dropout& dropout, const uint64_t* ids,
                   float* out);
  // `output_gradient` is [n], by row of the tile.
  // REQUIRES: ForwardTile ran on the tile with the same dropout.
  void BackwardTile(int lane, size_t tile, size_t n, const Dropout& dropout,
                    const float* output_gradient);

  // Adds the weight and bias gradients of `rows` rows (at least 1) to those of the parts before;
  // the last part writes the sums, times `scale`, to `out`, interleaved like the weights. `pieces`
  // cut the rows; without them `scale` must be 1 and `part` the whole. `ready` may be empty; it is
  // called as in NetGradients for the hidden layers' weights.
  absl::Status Gradients(size_t rows, const std::vector<RowPiece>& pieces, double scale,
                         SumPart part, float* const* out, const std::function<void(size_t)>& ready);

 private:
  Mlp(std::vector<size_t> widths, bool input_gradient, bool bf16, int threads);
  absl::Status CreatePlans();
  // The rows of a level from `row` on, as operands of products.
  const void* ActivationOperand(size_t level, size_t row) const;
  const void* GradientOperand(size_t level, size_t row) const;
  void RoundOperand(const AlignedArray<float>& from, AlignedArray<uint16_t>* to, size_t level,
                    size_t row) const;
  // Adds the sums of tiles up to the bias gradients and the output layer's gradients.
  void SumTiles(size_t tiles, double scale, SumPart part, float* const* out);

  const std::vector<size_t> widths_;
  const size_t last_;  // index of the output layer, and of the level that it reads
  const bool input_gradient_, bf16_;
  const int threads_;
  const LayerLoops& loops_;
  const float* const* dense_ = nullptr;
  bool half_ = false;    // operands of the current step are bf16
  size_t capacity_ = 0;  // rows, a multiple of kTile
  // By level, without the output: [capacity][widths_[level]]. Gradients are with respect to the
  // values before ReLU.
  std::vector<AlignedArray<float>> activations_, gradients_;
  std::vector<AlignedArray<uint16_t>> half_activations_, half_gradients_;  // bf16 only
  // By layer, without the output layer; half_forward_ with bf16 only.
  std::vector<std::unique_ptr<Matmul>> forward_, half_forward_, backward_;
  std::vector<AlignedArray<char>> packed_forward_, packed_backward_;
  // [tiles][tile_sums_size_]: sums over the rows of a tile of the bias gradients of each hidden
  // layer, then of the output layer's weights and bias.
  AlignedArray<double> tile_sums_;
  size_t tile_sums_size_ = 0;
  std::vector<double> total_;  // [tile_sums_size_], of the parts so far
  WeightGradients weights_;
  std::vector<WeightGradients::Layer> weight_layers_;
};

}  // namespace sluice
