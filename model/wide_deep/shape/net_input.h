// The checks that every backend of wide_deep makes before it computes, and the gradients of an
// empty batch.
//
// Thread safety:
//   pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "model/net/dense_net.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice {

// INVALID_ARGUMENT if the shape has a deep part without inputs, or a dropout outside [0, 1).
absl::Status CheckShape(const WideDeepShape& shape);
// INVALID_ARGUMENT if the batch has other features than the network.
absl::Status CheckBatch(const WideDeepShape& shape, const Batch& batch);
// INVALID_ARGUMENT if the input has other features or tensors than the network. elements:
// shape.dense_elements().
absl::Status CheckInput(const WideDeepShape& shape, const std::vector<size_t>& elements,
                        const NetInput& input);
// As CheckInput, and also checks what training needs: gradients, and example ids for dropout.
absl::Status CheckTrainStep(const WideDeepShape& shape, const std::vector<size_t>& elements,
                            const NetInput& input, bool dropout, const NetGradients& gradients);
// Sets the gradients of all dense tensors and of the input's rows to 0.
void SetToZero(const WideDeepShape& shape, const std::vector<size_t>& elements,
               const NetInput& input, NetGradients* gradients);

}  // namespace sluice
