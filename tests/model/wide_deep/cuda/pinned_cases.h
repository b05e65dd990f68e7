// Cases for every network with host memory of its own. Rows and gradients in that memory must give
// the same bits as elsewhere, and must belong to the caller again when the step ends.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "tests/model/wide_deep/cuda/resident_cases.h"

namespace sluice {

// `n` floats of the network's memory, after the first `before` floats of a block.
inline float* Among(HostArray* array, size_t before, size_t n, DenseNet* net) {
  array->Resize(before + n, net->host_memory());
  std::fill(array->begin(), array->end(), std::nanf(""));
  return array->data() + before;
}

inline void ExpectRowsInHostMemoryGiveTheSameBits(const MakeNet& make, const WideDeepShape& shape,
                                                  int rounds) {
  NetCase c(shape, 500);
  auto net = make(shape), plain = make(shape);
  ASSERT_NE(net->host_memory(), nullptr);
  const std::vector<float>& rows = c.rows();
  HostArray values;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    const TestStep step = c.Step(round % 4 == 3 ? 0 : 60 + 90 * (round % 3));
    const OwnedGradients expected = TrainOn(c, plain.get(), c.Input(step));
    NetInput input = c.Input(step);
    float* const here = Among(&values, round % 2 * shape.row_dim(0), rows.size(), net.get());
    std::copy(rows.begin(), rows.end(), here);
    // Rows alone, gradients alone, and both.
    if (round % 5 != 1) input.rows[0].values = here;
    OwnedGradients got(c, input);
    // The memory is freed at the end of the round.
    HostArray gradients;
    float* const there = Among(&gradients, round % 3, rows.size(), net.get());
    if (round % 5 != 2) got.view.rows[0] = there;
    const absl::Status status = net->TrainStep(input, 5, 2, &got.view);
    ASSERT_TRUE(status.ok()) << status;
    std::fill(values.begin(), values.end(), std::nanf(""));
    if (got.view.rows[0] == there) got.rows[0].assign(there, there + rows.size());
    ExpectSameBits(got, expected);

    if (step.batch.n == 0) continue;
    std::vector<float> logits(step.batch.n);
    std::copy(rows.begin(), rows.end(), here);
    input.rows[0].values = here;
    EXPECT_TRUE(net->Forward(input, logits.data()).ok());
    std::fill(values.begin(), values.end(), std::nanf(""));
    EXPECT_EQ(logits, c.Logits(plain.get(), step));
  }
}

// Blocks may be freed after the network.
inline void ExpectHostMemoryOutlivesTheNetwork(const MakeNet& make) {
  HostArray values;
  auto net = make(SmallShape());
  Among(&values, 0, 1000, net.get());
  net = nullptr;
  values.data()[999] = 1;
  EXPECT_EQ(values.size(), 1000u);
}

}  // namespace sluice
