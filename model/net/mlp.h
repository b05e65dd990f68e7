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
// Thread safety: one thread. Forward and Backward may run at the same time for different tiles on
// different lanes.
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
  // Backward stops at the first layer's weights.
  static absl::StatusOr<std::unique_ptr<Mlp>> Create(std::vector<size_t> widths,
                                                     bool input_gradient, bool bf16, int threads);

  // Makes room for n rows; growing loses the contents.
  void Reserve(size_t n);
  // Weights [in, out] and bias [out] of each layer, interleaved; borrowed until the next call.
  // Packs them into the layout of the products. Without `training` only Forward may follow.
  void SetWeights(const float* const* dense, bool training);
  float* input(size_t row) { return activations_[0].data() + row * widths_[0]; }
  // d loss / d input, after Backward.
  const float* input_gradient(size_t row) const { return gradients_[0].data() + row * widths_[0]; }

  // Runs forward on rows [row, row + n), whose inputs are in place. Zeroes the other inputs of the
  // last tile. `ids` are the examples of the rows, or null without dropout. `out` [n] gets the last
  // layer's values. All tiles pass through a layer before the next, so that its weights stay in the
  // cache.
  // REQUIRES: row is a multiple of kTile.
  void Forward(int lane, size_t row, size_t n, const Dropout& dropout, const uint64_t* ids,
               float* out);
  // `output_gradient` is [n], by row from `row` on.
  // REQUIRES: Forward ran on these rows with the same dropout.
  void Backward(int lane, size_t row, size_t n, const Dropout& dropout,
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
  // Forward through one hidden layer, and backward from its units to its inputs, of one tile. The
  // first n rows are examples.
  void ForwardTile(int lane, size_t layer, size_t row, size_t n, const Dropout& dropout,
                   const uint64_t* ids);
  void BackwardTile(int lane, size_t layer, size_t row, size_t n, float scale);
  // Backward through the output layer of one tile.
  void OutputTile(size_t row, size_t n, float scale, const float* output_gradient);
  // The sums of a tile of the bias gradients of `layer`, or of the output layer's weights and bias.
  double* TileSums(size_t row, size_t layer) {
    return tile_sums_.data() + row / kTile * tile_sums_size_ + sums_begin_[layer];
  }
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
  std::vector<size_t> sums_begin_;  // by layer
  std::vector<double> total_;       // [tile_sums_size_], of the parts so far
  WeightGradients weights_;
  std::vector<WeightGradients::Layer> weight_layers_;
};

}  // namespace sluice
