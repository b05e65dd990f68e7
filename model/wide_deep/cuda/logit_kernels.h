// Output layer, wide part, log loss and its gradient for one example, on kWarp lanes.
//
// Invariants: Each lane takes every kWarp-th term. The lanes are added in double as a tree (lane ^
// 16, 8, 4, 2, 1).
//
// Thread safety: pure functions.
#pragma once

#include "model/net/cuda/half_types.h"
#include "model/net/log_loss.h"
#include "model/wide_deep/cuda/step_view.h"

namespace sluice::cuda {

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

}  // namespace sluice::cuda
