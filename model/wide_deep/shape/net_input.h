// What every backend of wide_deep checks before it computes, and the gradients of no examples.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "model/net/dense_net.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice {

// INVALID_ARGUMENT when the shape has a deep part without inputs, or a dropout outside [0, 1).
absl::Status CheckShape(const WideDeepShape& shape);
// INVALID_ARGUMENT when the batch is of other features.
absl::Status CheckBatch(const WideDeepShape& shape, const Batch& batch);
// INVALID_ARGUMENT when the input is of other features or tensors. elements:
// shape.dense_elements().
absl::Status CheckInput(const WideDeepShape& shape, const std::vector<size_t>& elements,
                        const NetInput& input);
// The same with what training needs.
absl::Status CheckTrainStep(const WideDeepShape& shape, const std::vector<size_t>& elements,
                            const NetInput& input, bool dropout, const NetGradients& gradients);
void SetToZero(const std::vector<size_t>& elements, size_t row_values, NetGradients* gradients);

}  // namespace sluice
