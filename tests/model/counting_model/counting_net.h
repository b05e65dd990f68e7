// The gradients of a counting model (counting_model.h), on the CPU.
//
// Thread safety:
//   one thread.
#pragma once

#include <cstddef>

#include "model/net/dense_net.h"

namespace sluice {

class CountingNet : public DenseNet {
 public:
  // An example has `numbers` numbers; there are `totals` dense tables.
  CountingNet(size_t numbers, size_t totals) : numbers_(numbers), totals_(totals) {}

  // Gradients: minus the number of times that the batch has the key; minus the number of examples
  // and minus the sums of their numbers. The weight of the step is 1, also without examples.
  // INVALID_ARGUMENT when the input is of other features or tables.
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override;
  // The logit of an example is the sum of its rows.
  absl::Status Forward(const NetInput& input, float* logits) override;

 private:
  absl::Status Check(const NetInput& input) const;

  const size_t numbers_, totals_;
};

}  // namespace sluice
