#include "model/net/mlp.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "model/net/parallel.h"

namespace sluice {

Mlp::Mlp(std::vector<size_t> widths, bool input_gradient, bool bf16, int threads)
    : widths_(std::move(widths)),
      last_(widths_.size() - 2),
      input_gradient_(input_gradient),
      bf16_(bf16),
      threads_(threads),
      loops_(BestLayerLoops()),
      activations_(last_ + 1),
      gradients_(last_ + 1),
      half_activations_(last_ + 1),
      half_gradients_(last_ + 1),
      weights_({widths_.begin(), widths_.end() - 1}, bf16, threads),
      weight_layers_(last_) {
  for (size_t l = 0; l <= last_; ++l) {
    // A tile has the sums of each hidden layer's biases, then those of the output weights and of
    // the output bias.
    sums_begin_.push_back(tile_sums_size_);
    tile_sums_size_ += l < last_ ? widths_[l + 1] : widths_[last_] + 1;
  }
  total_.resize(tile_sums_size_);
}

absl::StatusOr<std::unique_ptr<Mlp>> Mlp::Create(std::vector<size_t> widths, bool input_gradient,
                                                 bool bf16, int threads) {
  std::unique_ptr<Mlp> mlp(new Mlp(std::move(widths), input_gradient, bf16, threads));
  SLUICE_RETURN_IF_ERROR(mlp->CreatePlans());
  return mlp;
}

absl::Status Mlp::CreatePlans() {
  packed_forward_.resize(last_);
  packed_backward_.resize(last_);
  for (size_t l = 0; l < last_; ++l) {
    const int64_t in = widths_[l], out = widths_[l + 1];
    Matmul::Shape forward;  // [kTile, in] x [in, out]
    forward.m = kTile, forward.k = in, forward.n = out, forward.lda = in;
    forward.b_packed = true;
    SLUICE_ASSIGN_OR_RETURN(auto matmul, Matmul::Create(forward, threads_));
    size_t bytes = matmul->packed_bytes();
    forward_.push_back(std::move(matmul));
    if (bf16_) {
      forward.bf16 = true;
      SLUICE_ASSIGN_OR_RETURN(matmul, Matmul::Create(forward, threads_));
      bytes = std::max(bytes, matmul->packed_bytes());
      half_forward_.push_back(std::move(matmul));
    }
    // Evaluation computes in f32 also when training does not, so the place must hold the larger
    // form.
    packed_forward_[l].Reserve(bytes);
    Matmul::Shape backward;  // [kTile, out] x [in, out]^T
    backward.m = kTile, backward.k = out, backward.n = in, backward.lda = out;
    backward.b_transposed = true, backward.b_packed = true, backward.bf16 = bf16_;
    SLUICE_ASSIGN_OR_RETURN(matmul, Matmul::Create(backward, threads_));
    packed_backward_[l].Reserve(matmul->packed_bytes());
    backward_.push_back(std::move(matmul));
  }
  return absl::OkStatus();
}

void Mlp::Reserve(size_t n) {
  // Whole tiles: the last one is padded, so that all products have the same shape and plan.
  const size_t rows = (n + kTile - 1) / kTile * kTile;
  if (rows <= capacity_) return;
  capacity_ = rows;
  for (size_t l = 0; l <= last_; ++l) {
    activations_[l].Reserve(rows * widths_[l]);
    gradients_[l].Reserve(rows * widths_[l]);
    if (!bf16_) continue;
    half_activations_[l].Reserve(rows * widths_[l]);
    half_gradients_[l].Reserve(rows * widths_[l]);
  }
  tile_sums_.Reserve(rows / kTile * tile_sums_size_);
}

void Mlp::SetWeights(const float* const* dense, bool training) {
  dense_ = dense;
  half_ = bf16_ && training;
  const auto& forward = half_ ? half_forward_ : forward_;
  // Packed once a step and used by all tiles. Only training goes backwards.
  ParallelFor(threads_, training ? 2 * last_ : last_, [&](int lane, size_t i) {
    const size_t l = i % last_;
    if (i < last_) {
      forward[l]->Pack(lane, dense[2 * l], packed_forward_[l].data());
      // Without embeddings in the input nobody needs its gradient.
    } else if (l > 0 || input_gradient_) {
      backward_[l]->Pack(lane, dense[2 * l], packed_backward_[l].data());
    }
  });
}

const void* Mlp::ActivationOperand(size_t level, size_t row) const {
  const size_t at = row * widths_[level];
  if (half_) return half_activations_[level].data() + at;
  return activations_[level].data() + at;
}

const void* Mlp::GradientOperand(size_t level, size_t row) const {
  const size_t at = row * widths_[level];
  if (half_) return half_gradients_[level].data() + at;
  return gradients_[level].data() + at;
}

void Mlp::RoundOperand(const AlignedArray<float>& from, AlignedArray<uint16_t>* to, size_t level,
                       size_t row) const {
  const size_t at = row * widths_[level];
  if (half_) loops_.to_bf16(from.data() + at, to->data() + at, kTile * widths_[level]);
}

void Mlp::Forward(int lane, size_t row, size_t n, const Dropout& dropout, const uint64_t* ids,
                  float* out) {
  // The padding must be numbers: its gradients are 0, and 0 times a NaN that an earlier batch has
  // left would be NaN.
  std::fill(input(row + n), input(row + (n + kTile - 1) / kTile * kTile), 0.0f);
  // Layer by layer over all rows of the call: the weights of a layer then stay in the cache while
  // the tiles pass.
  for (size_t l = 0; l < last_; ++l) {
    for (size_t i = 0; i < n; i += kTile)
      ForwardTile(lane, l, row + i, std::min(kTile, n - i), dropout,
                  ids == nullptr ? ids : ids + i);
  }
  const size_t units = widths_[last_];
  for (size_t i = 0; i < n; ++i) {
    out[i] = loops_.dot(activations_[last_].data() + (row + i) * units, dense_[2 * last_], units) +
             dense_[2 * last_ + 1][0];
  }
}

void Mlp::ForwardTile(int lane, size_t layer, size_t row, size_t n, const Dropout& dropout,
                      const uint64_t* ids) {
  const auto& forward = half_ ? half_forward_ : forward_;
  RoundOperand(activations_[layer], &half_activations_[layer], layer, row);
  const size_t units = widths_[layer + 1];
  float* const h = activations_[layer + 1].data() + row * units;  // [kTile, units]
  forward[layer]->Run(lane, ActivationOperand(layer, row), packed_forward_[layer].data(), h);
  for (size_t i = 0; i < kTile; ++i) {
    loops_.bias_relu(dense_[2 * layer + 1], h + i * units, units);
    if (i < n && dropout.active()) dropout.Apply(ids[i], layer, h + i * units, units);
  }
}

void Mlp::Backward(int lane, size_t row, size_t n, const Dropout& dropout,
                   const float* output_gradient) {
  const float scale = dropout.active() ? dropout.scale() : 1.0f;
  for (size_t i = 0; i < n; i += kTile)
    OutputTile(row + i, std::min(kTile, n - i), scale, output_gradient + i);
  for (size_t l = last_; l-- > (input_gradient_ ? 0 : 1);) {
    for (size_t i = 0; i < n; i += kTile)
      BackwardTile(lane, l, row + i, std::min(kTile, n - i), scale);
  }
}

void Mlp::OutputTile(size_t row, size_t n, float scale, const float* output_gradient) {
  const size_t units = widths_[last_];
  float* const z = gradients_[last_].data() + row * units;  // [kTile, units]
  double* const weight_sums = TileSums(row, last_);
  double* const bias_sums = TileSums(row, last_ - 1);
  std::fill_n(bias_sums, units, 0.0);
  std::fill_n(weight_sums, units + 1, 0.0);
  loops_.outer(activations_[last_].data() + row * units, dense_[2 * last_], output_gradient, scale,
               z, n, units, weight_sums, bias_sums);
  for (size_t i = 0; i < n; ++i) weight_sums[units] += output_gradient[i];
  // Padding rows get zero, so that they add nothing to any weight.
  std::fill_n(z + n * units, (kTile - n) * units, 0.0f);
  RoundOperand(gradients_[last_], &half_gradients_[last_], last_, row);
}

void Mlp::BackwardTile(int lane, size_t layer, size_t row, size_t n, float scale) {
  const size_t width = widths_[layer];
  float* const z = gradients_[layer].data() + row * width;  // [kTile, width]
  backward_[layer]->Run(lane, GradientOperand(layer + 1, row), packed_backward_[layer].data(), z);
  if (layer == 0) return;
  double* const bias_sums = TileSums(row, layer - 1);
  std::fill_n(bias_sums, width, 0.0);
  loops_.mask(activations_[layer].data() + row * width, scale, z, n, width, bias_sums);
  RoundOperand(gradients_[layer], &half_gradients_[layer], layer, row);
}

absl::Status Mlp::Gradients(size_t rows, const std::vector<RowPiece>& pieces, double scale,
                            SumPart part, float* const* out,
                            const std::function<void(size_t)>& ready) {
  const size_t tiles = (rows + kTile - 1) / kTile;
  for (size_t l = 0; l < last_; ++l) {
    weight_layers_[l] = {ActivationOperand(l, 0), GradientOperand(l + 1, 0), out[2 * l]};
  }
  std::function<void(size_t)> done;
  if (ready) done = [&ready](size_t layer) { ready(2 * layer); };
  // Padding adds only zeros. Without it every short batch would need its own plans.
  SLUICE_RETURN_IF_ERROR(weights_.Run(pieces.empty() ? tiles * kTile : rows, pieces, scale,
                                      weight_layers_, part, done));
  SumTiles(tiles, scale, part, out);
  return absl::OkStatus();
}

void Mlp::SumTiles(size_t tiles, double scale, SumPart part, float* const* out) {
  if (part.first) std::fill(total_.begin(), total_.end(), 0.0);
  for (size_t t = 0; t < tiles; ++t) {
    const double* sums = tile_sums_.data() + t * tile_sums_size_;
    // In the order of the tiles, so that the sums do not depend on the threads.
    for (size_t j = 0; j < tile_sums_size_; ++j) total_[j] += sums[j];
  }
  if (!part.last) return;
  // In the order in which the constructor has placed them.
  const double* from = total_.data();
  for (size_t l = 0; l < last_; ++l) {
    loops_.round(from, scale, out[2 * l + 1], widths_[l + 1]);
    from += widths_[l + 1];
  }
  loops_.round(from, scale, out[2 * last_], widths_[last_]);
  loops_.round(from + widths_[last_], scale, out[2 * last_ + 1], 1);
}

}  // namespace sluice
