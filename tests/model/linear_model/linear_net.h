// Logistic regression on the CPU: logit = bias + sum of weight x number.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "model/net/dense_net.h"

namespace sluice {

class LinearNet : public DenseNet {
 public:
  // An example has `num_numeric` numbers.
  LinearNet(size_t num_numeric, bool has_bias) : num_numeric_(num_numeric), has_bias_(has_bias) {}

  // INVALID_ARGUMENT when the input is of other features or tables.
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override;
  absl::Status Forward(const NetInput& input, float* logits) override;

 private:
  absl::Status Check(const NetInput& input) const;
  float Logit(const NetInput& input, size_t example) const;

  const size_t num_numeric_;
  const bool has_bias_;
  std::vector<double> sums_;  // [num_numeric + 1]: gradients of the weights and of the bias
};

}  // namespace sluice
