// Cases for every CUDA-shaped backend of wide_deep: the device's code on the host, or the device
// itself. `make` makes the network of a shape.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "tests/model/wide_deep/net_fixture.h"

namespace sluice {

using MakeNet = std::function<std::unique_ptr<DenseNet>(const WideDeepShape&)>;

inline void ExpectSameGradients(const OwnedGradients& got, const OwnedGradients& expected,
                                double tol) {
  EXPECT_FALSE(got.view.skipped);
  EXPECT_EQ(got.view.weight_sum, expected.view.weight_sum);
  EXPECT_NEAR(got.view.loss_sum, expected.view.loss_sum, tol * (1 + expected.view.loss_sum));
  ExpectClose(got.rows, expected.rows, tol, "rows");
  for (size_t t = 0; t < got.dense.size(); ++t)
    ExpectClose(got.dense[t], expected.dense[t], tol, "dense " + std::to_string(t));
}

// Compares logits, loss and every gradient with the CPU backend.
inline void ExpectAgreesWithCpu(const MakeNet& make, const WideDeepShape& shape, size_t n,
                                size_t num_rows, double tol = 2e-6) {
  SCOPED_TRACE(testing::Message() << n << " examples, " << num_rows << " rows");
  NetCase c(shape, num_rows);
  const TestStep step = c.Step(n);
  auto cpu = c.Net(), net = make(shape);
  ExpectClose(c.Logits(net.get(), step), c.Logits(cpu.get(), step), tol, "logits");
  ExpectSameGradients(Train(c, net.get(), step, 5, 2), Train(c, cpu.get(), step, 5, 2), tol);
}

inline void ExpectSizesAgree(const MakeNet& make) {
  for (const size_t n : {1, 31, 32, 33, 63, 64, 65, 127, 257, 600}) {
    for (const size_t rows : {1, 5, 64, 65}) ExpectAgreesWithCpu(make, SmallShape(), n, rows);
  }
}

inline void ExpectWidthsAgree(const MakeNet& make) {
  for (const uint32_t width : {1, 2, 31, 32, 33, 65}) {
    ExpectAgreesWithCpu(make, WideShape({width, 9}, 3), 40, 11);
    ExpectAgreesWithCpu(make, WideShape({9, width}, 3), 40, 11);
    ExpectAgreesWithCpu(make, WideShape({5}, width), 40, 11);
  }
}

inline void ExpectDropoutAgrees(const MakeNet& make) {
  WideDeepShape shape = WideShape({33, 20, 7}, 5);
  shape.dropout = 0.4f;
  ExpectAgreesWithCpu(make, shape, 100, 30);
}

inline void ExpectManyKeysAndRowsAgree(const MakeNet& make) {
  const WideDeepShape shape = WideShape({8}, 2);
  ExpectAgreesWithCpu(make, shape, 3000, 1, 5e-6);  // each chunk belongs to a single row
  ExpectAgreesWithCpu(make, shape, 3000, 2, 5e-6);
  ExpectAgreesWithCpu(make, shape, 3000, 5000);  // three passes of the sort, rows without keys
  ExpectAgreesWithCpu(make, shape, 50, 300000);  // four passes
}

inline void ExpectEveryKindAgrees(const MakeNet& make) {
  WideDeepShape wide_only = SmallShape();
  wide_only.hidden.clear();
  wide_only.embedding_dims = {0};
  WideDeepShape deep_only = SmallShape();
  deep_only.wide_numeric.clear();
  deep_only.wide_bias = false;
  deep_only.wide_columns = {false};
  WideDeepShape numbers_only = SmallShape();
  numbers_only.slots.clear();
  numbers_only.wide_columns = {false};
  numbers_only.embedding_dims = {0};
  WideDeepShape no_table = SmallShape();
  no_table.wide_columns = {false};
  no_table.embedding_dims = {0};
  WideDeepShape no_numbers = SmallShape();
  no_numbers.wide_numeric.clear();
  no_numbers.deep_numeric.clear();
  WideDeepShape wide_column_beside_numbers = SmallShape();
  wide_column_beside_numbers.embedding_dims = {0};
  for (const WideDeepShape& shape :
       {wide_only, deep_only, numbers_only, no_table, no_numbers, wide_column_beside_numbers}) {
    ExpectAgreesWithCpu(make, shape, 37, 11);
  }
}

inline void ExpectAgreesWithFiniteDifferences(const MakeNet& make) {
  for (const float rate : {0.0f, 0.4f}) {
    WideDeepShape shape = SmallShape();
    shape.dropout = rate;
    NetCase c(shape, 11);
    const TestStep step = c.Step(13);
    const Dropout dropout(rate, 5, 2);
    const ReferenceModel reference(shape);
    const ReferenceValues expected =
        reference.FiniteDifferences(step.batch, step.row_index, c.Reference(), &dropout);
    auto net = make(shape);
    const OwnedGradients got = Train(c, net.get(), step, 5, 2);
    EXPECT_NEAR(got.view.loss_sum / got.view.weight_sum,
                reference.Loss(step.batch, step.row_index, c.Reference(), &dropout), 1e-6);
    ExpectClose(got.rows, expected.rows, 1e-6, "rows");
    for (size_t t = 0; t < got.dense.size(); ++t)
      ExpectClose(got.dense[t], expected.dense[t], 1e-6, "dense " + std::to_string(t));
  }
}

inline void ExpectZeroWeightsGiveZeroGradients(const MakeNet& make) {
  NetCase c(SmallShape(), 11);
  TestStep step = c.Step(9);
  step.batch.weight.assign(9, 0.0f);
  auto net = make(SmallShape());
  const OwnedGradients got = Train(c, net.get(), step);
  EXPECT_EQ(got.view.loss_sum, 0);
  EXPECT_EQ(got.rows[0], std::vector<float>(got.rows[0].size(), 0.0f));
  for (const auto& tensor : got.dense) EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 0.0f));
}

inline void ExpectCellsWithoutKeysAgree(const MakeNet& make) {
  NetCase c(SmallShape(), 11);
  TestStep step = c.Step(9);
  step.batch.keys.clear();
  step.row_index.clear();
  step.batch.key_offsets.assign(step.batch.key_offsets.size(), 0);
  auto net = make(SmallShape());
  ExpectSameGradients(Train(c, net.get(), step), Train(c, c.Net().get(), step), 2e-6);
}

inline void ExpectNanReachesTheLoss(const MakeNet& make) {
  NetCase c(SmallShape(), 11);
  const TestStep step = c.Step(9);
  c.dense()[0][0] = std::nanf("");
  c.dense()[1][0] = std::nanf("");
  auto net = make(SmallShape());
  EXPECT_TRUE(std::isnan(Train(c, net.get(), step).view.loss_sum));
}

// `ready` is called for the hidden layers' weights, the last layer first, once each gradient is
// final.
inline void ExpectReadyFromTheLastLayerOn(const MakeNet& make) {
  NetCase c(WideShape({7, 6, 5}, 3), 11);
  const TestStep step = c.Step(9);
  auto net = make(c.shape());
  const OwnedGradients expected = Train(c, net.get(), step);
  OwnedGradients got(c, 11);
  std::vector<size_t> ready;
  got.view.ready = [&](size_t i) {
    ready.push_back(i);
    EXPECT_EQ(got.dense[i], expected.dense[i]);
    EXPECT_EQ(got.view.weight_sum, expected.view.weight_sum);
    EXPECT_TRUE(std::isnan(got.dense[1][0])) << "a bias gradient comes with the rest";
  };
  EXPECT_TRUE(net->TrainStep(c.Input(step), 5, 0, &got.view).ok());
  EXPECT_EQ(ready, std::vector<size_t>({4, 2, 0}));
  EXPECT_EQ(got.dense, expected.dense);
}

// Training with 16-bit operands stays within `tol` but is not exact, which shows that they are
// used. A forward pass is exact.
inline void ExpectSixteenBitsAreClose(const MakeNet& make, double tol) {
  WideDeepShape shape = WideShape({40, 30}, 6);
  shape.dropout = 0.2f;
  NetCase c(shape, 50);
  const TestStep step = c.Step(100);
  auto cpu = c.Net(), net = make(shape);
  const OwnedGradients exact = Train(c, cpu.get(), step), got = Train(c, net.get(), step);
  ExpectSameGradients(got, exact, tol);
  EXPECT_NE(got.dense[0], exact.dense[0]) << "16-bit operands are not in use";
  ExpectClose(c.Logits(net.get(), step), c.Logits(cpu.get(), step), 2e-6, "logits");
}

}  // namespace sluice
