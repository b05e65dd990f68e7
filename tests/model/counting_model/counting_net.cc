#include "tests/model/counting_model/counting_net.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {

absl::Status CountingNet::Check(const NetInput& input) const {
  if (input.batch->num_numeric == numbers_ && input.dense.size() == totals_ &&
      input.rows.size() == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the network has ", numbers_, " numbers, ", totals_,
      " dense tables and a sparse table; the input has ", input.batch->num_numeric, " numbers, ",
      input.dense.size(), " dense tables and ", input.rows.size(), " sparse tables"));
}

absl::Status CountingNet::Forward(const NetInput& input, float* logits) {
  SLUICE_RETURN_IF_ERROR(Check(input));
  const Batch& batch = *input.batch;
  for (size_t i = 0; i < batch.n; ++i) {
    logits[i] = 0;
    const size_t slot = i * batch.num_slots;
    for (size_t k = batch.key_offsets[slot]; k < batch.key_offsets[slot + batch.num_slots]; ++k)
      logits[i] += input.rows[0].values[input.row_index[k]];
  }
  return absl::OkStatus();
}

absl::Status CountingNet::TrainStep(const NetInput& input, uint64_t, uint32_t,
                                    NetGradients* gradients) {
  SLUICE_RETURN_IF_ERROR(Check(input));
  const Batch& batch = *input.batch;
  gradients->skipped = false;
  gradients->loss_sum = 0;
  gradients->weight_sum = 1;
  float* const rows = gradients->rows[0];
  std::fill_n(rows, input.rows[0].n, 0.0f);
  for (size_t k = 0; k < batch.keys.size(); ++k) rows[input.row_index[k]] -= 1;
  for (float* total : gradients->dense) {
    std::fill_n(total, 1 + numbers_, 0.0f);
    total[0] = -static_cast<float>(batch.n);
    for (size_t i = 0; i < batch.n * numbers_; ++i) total[1 + i % numbers_] -= batch.numeric[i];
  }
  return absl::OkStatus();
}

}  // namespace sluice
