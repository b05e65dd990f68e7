// The work between the matrix products: bias, ReLU and dropout in the forward pass; output layer,
// wide part and log loss of one example, on kWarp lanes; and the backward pass, together with the
// column sums that are the gradients of biases, output layer and wide part.
//
// Invariants: A column sum is cut into slices of kSliceRows rows. Inside a slice each of
// kSliceLanes threads adds every kSliceLanes-th row; the threads' sums are then added in order, and
// so are the slices' sums. All sums are in double, so they depend on the batch only.
//
// Shapes:
//   B examples are padded to `rows` rows; matrices are row major with `ld` elements a row.
//
// Thread safety: pure functions, each on its own elements.
#pragma once

#include <cstdint>

#include "model/net/cuda/half_types.h"
#include "model/net/log_loss.h"
#include "model/wide_deep/cuda/step_view.h"

namespace sluice::cuda {

constexpr uint32_t kSliceRows = 256;
constexpr uint32_t kSliceLanes = 8;  // threads for each column of a slice

// Converts an element of weights [in][out] to an operand in to[in][ld]; columns from `out` on are
// 0.
template <typename T>
SLUICE_HD inline void ConvertWeight(const float* weights, uint32_t out, uint32_t row, uint32_t c,
                                    uint32_t ld, T* to, uint32_t* overflow) {
  const float value = c < out ? weights[static_cast<uint64_t>(row) * out + c] : 0.0f;
  Store(value, to + static_cast<uint64_t>(row) * ld + c, overflow);
}

// Computes units 2 * pair and 2 * pair + 1 of example i in hidden layer `layer` (0-based):
// h = dropout(ReLU(z + bias)), 0 for padding. z: [rows][ld_z]; h: [rows][ld_h]. When T is float,
// z and h are the same memory.
template <typename T>
SLUICE_HD inline void BiasReluPair(const StepHeader& header, const uint64_t* example_id,
                                   uint32_t layer, bool training, const float* bias, uint32_t units,
                                   uint32_t i, uint32_t pair, const float* z, uint32_t ld_z, T* h,
                                   uint32_t ld_h, uint32_t* overflow) {
  float factors[2] = {1.0f, 1.0f};
  const bool real = i < header.n;
  if (real && training && header.dropout.active())
    header.dropout.PairFactors(example_id[i], layer, 2 * pair, factors);
  for (uint32_t side = 0; side < 2; ++side) {
    const uint32_t u = 2 * pair + side;
    if (u >= ld_h) return;
    float value = 0.0f;
    if (real && u < units) {
      value = z[static_cast<uint64_t>(i) * ld_z + u] + bias[u];
      if (value < 0.0f) value = 0.0f;  // the comparison keeps NaN
      value = factors[side] == 0.0f ? 0.0f : value * factors[side];
    }
    Store(value, h + static_cast<uint64_t>(i) * ld_h + u, overflow);
  }
}

// ------------------------------------------------------------------ logits and loss
// Each lane takes every kWarp-th term. The lanes are added in double as a tree (lane ^ 16, 8, 4, 2,
// 1).
constexpr uint32_t kWarp = 32;

// The values that the logit needs besides the batch; null where the network lacks the part.
template <typename T>
struct LogitInput {
  const T* h;                // [rows][ld]: last hidden layer
  const float* output;       // [units]
  const float* output_bias;  // [1]
  const float* wide;         // [num_wide_numeric]
  const float* wide_bias;    // [1]
  uint32_t units, ld;
};

// The sum of terms lane, lane + kWarp, ... of example i.
template <typename T>
SLUICE_HD inline double LogitLane(const NetView& net, const BatchView& batch,
                                  const LogitInput<T>& in, uint32_t i, uint32_t lane) {
  float deep = 0.0f;
  const T* h = in.h + static_cast<uint64_t>(i) * in.ld;
  for (uint32_t j = lane; j < in.units; j += kWarp) deep += ToFloat(h[j]) * in.output[j];
  double wide = 0.0;
  for (uint32_t j = lane; j < net.num_wide_numeric; j += kWarp) {
    wide += static_cast<double>(in.wide[j]) *
            batch.numeric[static_cast<uint64_t>(i) * net.num_numeric + net.wide_numeric[j]];
  }
  for (uint32_t s = lane; s < net.num_slots; s += kWarp) {
    if (!net.slots[s].wide) continue;
    const uint64_t cell = static_cast<uint64_t>(i) * net.num_slots + s;
    for (uint32_t k = batch.key_offsets[cell]; k < batch.key_offsets[cell + 1]; ++k)
      wide += RowOfKey(net, batch, k)[0];
  }
  return wide + deep;
}

// The logit from the sum of all lanes.
template <typename T>
SLUICE_HD inline float FinishLogit(const LogitInput<T>& in, double sum) {
  if (in.output_bias != nullptr) sum += *in.output_bias;
  if (in.wide_bias != nullptr) sum += *in.wide_bias;
  return static_cast<float>(sum);
}

// loss: weighted. d_logit: gradient of the mean loss, times the loss scale.
SLUICE_HD inline void LossOfLogit(float logit, float label, float weight, double gradient_factor,
                                  double* loss, float* d_logit) {
  *loss = weight * LogLossOf(logit, label);
  *d_logit = static_cast<float>(weight * (SigmoidOf(logit) - label) * gradient_factor);
}

// ------------------------------------------------------------------ backward, with column sums
// An operation's Run computes and stores element (i, j) and adds to sums[kSums]. Pad is called for
// rows and columns of padding.

// Backward pass from the loss to the last hidden layer: dz = h > 0 ? w * g * scale : 0. Sums: dz
// (the layer's bias gradient) and g * h (the output layer's weight gradient).
template <typename T>
struct OutputBackward {
  static constexpr uint32_t kSums = 2;
  const T* h;             // [rows][ld]
  const float* w;         // [units]
  const float* d_logits;  // [n]
  T* dz;                  // [rows][ld]
  uint32_t ld;
  float dropout_scale;  // 1 without dropout
  uint32_t* overflow;

  SLUICE_HD void Run(uint32_t i, uint32_t j, double* sums) const {
    const uint64_t at = static_cast<uint64_t>(i) * ld + j;
    const float value = ToFloat(h[at]), g = d_logits[i];
    const float d = value > 0.0f ? w[j] * g * dropout_scale : 0.0f;
    Store(d, dz + at, overflow);
    sums[0] += d;
    sums[1] += static_cast<double>(g) * value;
  }
  SLUICE_HD void Pad(uint32_t i, uint32_t j) const {
    FromFloat(0.0f, dz + static_cast<uint64_t>(i) * ld + j);
  }
};

// Backward pass from product = dz(l + 1) x W^T to dz(l) = h > 0 ? product * scale : 0. Sums: dz.
// When T is float, `product` and dz are the same memory.
template <typename T>
struct HiddenBackward {
  static constexpr uint32_t kSums = 1;
  const T* h;            // [rows][ld]
  const float* product;  // [rows][ld]
  T* dz;                 // [rows][ld]
  uint32_t ld;
  float dropout_scale;
  uint32_t* overflow;

  SLUICE_HD void Run(uint32_t i, uint32_t j, double* sums) const {
    const uint64_t at = static_cast<uint64_t>(i) * ld + j;
    const float d = ToFloat(h[at]) > 0.0f ? product[at] * dropout_scale : 0.0f;
    Store(d, dz + at, overflow);
    sums[0] += d;
  }
  SLUICE_HD void Pad(uint32_t i, uint32_t j) const {
    FromFloat(0.0f, dz + static_cast<uint64_t>(i) * ld + j);
  }
};

// The columns are g * x for each wide number, then g (the gradient of both biases), then the
// weighted loss.
struct WideBackward {
  static constexpr uint32_t kSums = 1;
  const float* d_logits;  // [n]
  const double* losses;   // [n]
  const float* numeric;   // [n][num_numeric]
  const uint32_t* wide_numeric;
  uint32_t num_numeric, num_wide_numeric;

  SLUICE_HD void Run(uint32_t i, uint32_t j, double* sums) const {
    const double g = d_logits[i];
    if (j < num_wide_numeric) {
      sums[0] += g * numeric[static_cast<uint64_t>(i) * num_numeric + wide_numeric[j]];
    } else {
      sums[0] += j == num_wide_numeric ? g : losses[i];
    }
  }
  SLUICE_HD void Pad(uint32_t, uint32_t) const {}
};

// One lane of one slice: rows slice * kSliceRows + lane, + kSliceLanes, ... of column j, below
// `rows`. Rows from n on and columns from `columns` on are padding, which adds nothing.
template <typename Op>
SLUICE_HD inline void SliceLane(const Op& op, uint32_t n, uint32_t rows, uint32_t columns,
                                uint32_t slice, uint32_t lane, uint32_t j, double* sums) {
  for (uint32_t s = 0; s < Op::kSums; ++s) sums[s] = 0.0;
  const uint32_t begin = slice * kSliceRows;
  const uint32_t end = begin + kSliceRows < rows ? begin + kSliceRows : rows;
  for (uint32_t i = begin + lane; i < end; i += kSliceLanes) {
    if (i < n && j < columns) {
      op.Run(i, j, sums);
    } else {
      op.Pad(i, j);
    }
  }
}

SLUICE_HD inline uint32_t Slices(uint32_t rows) { return (rows + kSliceRows - 1) / kSliceRows; }

// Adds the slices' sums of column j. partials: [slices][width].
SLUICE_HD inline double FinishSum(const double* partials, uint32_t slices, uint32_t width,
                                  uint32_t j) {
  double sum = 0.0;
  for (uint32_t s = 0; s < slices; ++s) sum += partials[static_cast<uint64_t>(s) * width + j];
  return sum;
}

// The targets of the sums of OutputBackward and HiddenBackward: columns [0, split) go to `first`,
// the others to `second`.
struct SumTargets {
  float* first;   // [split]
  float* second;  // [width - split]
  uint32_t split;
};
SLUICE_HD inline void WriteSum(const SumTargets& to, uint32_t j, double sum) {
  if (j < to.split) {
    to.first[j] = static_cast<float>(sum);
  } else {
    to.second[j - to.split] = static_cast<float>(sum);
  }
}

// The targets of the sums of WideBackward; null where the network lacks the part.
struct WideTargets {
  float* weight;       // [num_wide_numeric]
  float* bias;         // [1]
  float* output_bias;  // [1]
  double* loss;        // [1]
  uint32_t num_wide_numeric;
};
SLUICE_HD inline void WriteSum(const WideTargets& to, uint32_t j, double sum) {
  if (j < to.num_wide_numeric) {
    to.weight[j] = static_cast<float>(sum);
  } else if (j > to.num_wide_numeric) {
    *to.loss = sum;
  } else {
    if (to.bias != nullptr) *to.bias = static_cast<float>(sum);
    if (to.output_bias != nullptr) *to.output_bias = static_cast<float>(sum);
  }
}

}  // namespace sluice::cuda
