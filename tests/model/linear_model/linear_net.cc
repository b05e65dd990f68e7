#include "tests/model/linear_model/linear_net.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/net/log_loss.h"

namespace sluice {

absl::Status LinearNet::Check(const NetInput& input) const {
  const size_t tables = has_bias_ ? 2 : 1;
  if (input.batch->num_numeric == num_numeric_ && input.batch->num_slots == 0 &&
      input.dense.size() == tables) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the network has ", num_numeric_, " numbers and ", tables,
                   " tables; the input has ", input.batch->num_numeric, " numbers, ",
                   input.batch->num_slots, " slots and ", input.dense.size(), " tables"));
}

float LinearNet::Logit(const NetInput& input, size_t example) const {
  const float* x = input.batch->numeric.data() + example * num_numeric_;
  double sum = has_bias_ ? input.dense[1][0] : 0;
  for (size_t j = 0; j < num_numeric_; ++j) sum += static_cast<double>(input.dense[0][j]) * x[j];
  return static_cast<float>(sum);
}

absl::Status LinearNet::Forward(const NetInput& input, float* logits) {
  SLUICE_RETURN_IF_ERROR(Check(input));
  for (size_t i = 0; i < input.batch->n; ++i) logits[i] = Logit(input, i);
  return absl::OkStatus();
}

absl::Status LinearNet::TrainStep(const NetInput& input, uint64_t, uint32_t,
                                  NetGradients* gradients) {
  SLUICE_RETURN_IF_ERROR(Check(input));
  const Batch& batch = *input.batch;
  gradients->loss_sum = gradients->weight_sum = 0;
  gradients->skipped = false;
  sums_.assign(num_numeric_ + 1, 0);
  for (size_t i = 0; i < batch.n; ++i) {
    const float logit = Logit(input, i);
    const double error = batch.weight[i] * (SigmoidOf(logit) - batch.label[i]);
    const float* x = batch.numeric.data() + i * num_numeric_;
    for (size_t j = 0; j < num_numeric_; ++j) sums_[j] += error * x[j];
    sums_[num_numeric_] += error;
    gradients->loss_sum += batch.weight[i] * LogLoss(logit, batch.label[i]);
    gradients->weight_sum += batch.weight[i];
  }
  const double mean = gradients->weight_sum > 0 ? 1 / gradients->weight_sum : 0;
  for (size_t j = 0; j < num_numeric_; ++j)
    gradients->dense[0][j] = static_cast<float>(sums_[j] * mean);
  if (has_bias_) gradients->dense[1][0] = static_cast<float>(sums_[num_numeric_] * mean);
  return absl::OkStatus();
}

}  // namespace sluice
