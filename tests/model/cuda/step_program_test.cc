// The whole step of the CUDA backend, run on the host through the device's own indexing code,
// against the CPU backend and the float64 reference.
#include "model/net/cuda/step_program.h"

#include <cmath>

#include "gmock/gmock.h"
#include "tests/model/cuda/host_net.h"
#include "tests/model/net/net_fixture.h"

namespace sluice::cuda {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kSeed = 5;

void ExpectSameGradients(const OwnedGradients& got, const OwnedGradients& expected, double tol) {
  EXPECT_FALSE(got.view.skipped);
  EXPECT_EQ(got.view.weight_sum, expected.view.weight_sum);
  EXPECT_NEAR(got.view.loss_sum, expected.view.loss_sum, tol * (1 + expected.view.loss_sum));
  ExpectClose(got.rows, expected.rows, tol, "rows");
  for (size_t t = 0; t < got.dense.size(); ++t)
    ExpectClose(got.dense[t], expected.dense[t], tol, "dense " + std::to_string(t));
}

// Logits, loss and every gradient against the CPU backend.
void ExpectAgreesWithCpu(const WideDeepShape& shape, size_t n, size_t num_rows, double tol = 2e-6) {
  SCOPED_TRACE(testing::Message() << n << " examples, " << num_rows << " rows");
  NetCase c(shape, num_rows);
  const TestStep step = c.Step(n);
  auto cpu = c.Net();
  HostNet host(shape);
  ExpectClose(c.Logits(&host, step), c.Logits(cpu.get(), step), tol, "logits");
  ExpectSameGradients(Train(c, &host, step, kSeed, 2), Train(c, cpu.get(), step, kSeed, 2), tol);
}

TEST(StepProgramTest, AgreesWithCpuForAllSizesThatBreakKernels) {
  for (const size_t n : {1, 31, 32, 33, 63, 64, 65, 127, 257, 600}) {
    for (const size_t rows : {1, 5, 64, 65}) ExpectAgreesWithCpu(SmallShape(), n, rows);
  }
}

TEST(StepProgramTest, AgreesWithCpuForAllWidthsThatBreakKernels) {
  for (const uint32_t width : {1, 2, 31, 32, 33, 65}) {
    ExpectAgreesWithCpu(WideShape({width, 9}, 3), 40, 11);
    ExpectAgreesWithCpu(WideShape({9, width}, 3), 40, 11);
    ExpectAgreesWithCpu(WideShape({5}, width), 40, 11);
  }
}

TEST(StepProgramTest, AgreesWithCpuWithDropout) {
  WideDeepShape shape = WideShape({33, 20, 7}, 5);
  shape.dropout = 0.4f;
  ExpectAgreesWithCpu(shape, 100, 30);
}

TEST(StepProgramTest, RowsOfManyKeysAndManyRows) {
  ExpectAgreesWithCpu(WideShape({8}, 2), 3000, 1, 5e-6);  // every chunk is one row's
  ExpectAgreesWithCpu(WideShape({8}, 2), 3000, 2, 5e-6);
  ExpectAgreesWithCpu(WideShape({8}, 2), 3000, 5000);  // three passes, rows without keys
  ExpectAgreesWithCpu(WideShape({8}, 2), 50, 300000);  // four passes
}

TEST(StepProgramTest, AgreesWithFiniteDifferences) {
  for (const float rate : {0.0f, 0.4f}) {
    WideDeepShape shape = SmallShape();
    shape.dropout = rate;
    NetCase c(shape, 11);
    const TestStep step = c.Step(13);
    const Dropout dropout(rate, kSeed, 2);
    const ReferenceModel reference(shape);
    const ReferenceValues expected =
        reference.FiniteDifferences(step.batch, step.row_index, c.Reference(), &dropout);
    HostNet host(shape);
    const OwnedGradients got = Train(c, &host, step, kSeed, 2);
    EXPECT_NEAR(got.view.loss_sum / got.view.weight_sum,
                reference.Loss(step.batch, step.row_index, c.Reference(), &dropout), 1e-6);
    ExpectClose(got.rows, expected.rows, 1e-6, "rows");
    for (size_t t = 0; t < got.dense.size(); ++t)
      ExpectClose(got.dense[t], expected.dense[t], 1e-6, "dense " + std::to_string(t));
  }
}

TEST(StepProgramTest, EveryKindOfNetwork) {
  WideDeepShape wide_only = SmallShape();
  wide_only.hidden.clear();
  wide_only.embedding_dim = 0;
  ExpectAgreesWithCpu(wide_only, 37, 11);
  WideDeepShape deep_only = SmallShape();
  deep_only.wide_numeric.clear();
  deep_only.wide_bias = deep_only.wide_column = false;
  ExpectAgreesWithCpu(deep_only, 37, 11);
  WideDeepShape numbers_only = SmallShape();
  numbers_only.slots.clear();
  numbers_only.wide_column = false;
  numbers_only.embedding_dim = 0;
  ExpectAgreesWithCpu(numbers_only, 37, 11);
  WideDeepShape no_table = SmallShape();
  no_table.wide_column = false;
  no_table.embedding_dim = 0;
  ExpectAgreesWithCpu(no_table, 37, 11);
  WideDeepShape no_numbers = SmallShape();
  no_numbers.wide_numeric.clear();
  no_numbers.deep_numeric.clear();
  ExpectAgreesWithCpu(no_numbers, 37, 11);
  WideDeepShape wide_column_beside_numbers = SmallShape();
  wide_column_beside_numbers.embedding_dim = 0;
  ExpectAgreesWithCpu(wide_column_beside_numbers, 37, 11);
}

TEST(StepProgramTest, ZeroWeightsGiveZeroGradients) {
  NetCase c(SmallShape(), 11);
  TestStep step = c.Step(9);
  step.batch.weight.assign(9, 0.0f);
  HostNet host(SmallShape());
  const OwnedGradients got = Train(c, &host, step);
  EXPECT_EQ(got.view.loss_sum, 0);
  EXPECT_EQ(got.rows, std::vector<float>(got.rows.size(), 0.0f));
  for (const auto& tensor : got.dense) EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 0.0f));
}

TEST(StepProgramTest, CellsWithoutKeys) {
  NetCase c(SmallShape(), 11);
  TestStep step = c.Step(9);
  step.batch.keys.clear();
  step.row_index.clear();
  step.batch.key_offsets.assign(step.batch.key_offsets.size(), 0);
  HostNet host(SmallShape());
  ExpectSameGradients(Train(c, &host, step), Train(c, c.Net().get(), step), 2e-6);
}

TEST(StepProgramTest, NanInAWeightReachesTheLoss) {
  NetCase c(SmallShape(), 11);
  const TestStep step = c.Step(9);
  c.dense()[0][0] = std::nanf("");
  c.dense()[1][0] = std::nanf("");
  HostNet host(SmallShape());
  EXPECT_TRUE(std::isnan(Train(c, &host, step).view.loss_sum));
}

TEST(StepProgramTest, WeightGradientsAreDoneFromTheLastLayerOn) {
  NetCase c(WideShape({7, 6, 5}, 3), 11);
  HostNet host(c.shape());
  Train(c, &host, c.Step(9));
  EXPECT_THAT(host.weight_gradients(), ElementsAre(2, 1, 0));
}

// -------------------------------------------------------------------------------- 16-bit operands

TEST(StepProgramTest, SixteenBitTrainingIsCloseAndForwardIsExact) {
  WideDeepShape shape = WideShape({40, 30}, 6);
  shape.dropout = 0.2f;
  NetCase c(shape, 50);
  const TestStep step = c.Step(100);
  auto cpu = c.Net();
  const OwnedGradients exact = Train(c, cpu.get(), step);
  for (const Element element : {Element::kBf16, Element::kFp16}) {
    HostNet host(shape, element, element == Element::kFp16 ? 128 : 1);
    const OwnedGradients got = Train(c, &host, step);
    ExpectSameGradients(got, exact, element == Element::kFp16 ? 2e-3 : 1e-2);
    EXPECT_NE(got.dense[0], exact.dense[0]) << "16-bit operands are not in use";
    ExpectClose(c.Logits(&host, step), c.Logits(cpu.get(), step), 2e-6, "logits");
  }
}

TEST(StepProgramTest, Fp16ReportsOverflowOfGradientsActivationsAndWeights) {
  const WideDeepShape shape = WideShape({40, 30}, 6);
  NetCase c(shape, 50);
  const TestStep step = c.Step(100);
  const auto skipped = [&](double scale, Element element = Element::kFp16) {
    HostNet host(shape, element, scale);
    return Train(c, &host, step).view.skipped;
  };
  EXPECT_FALSE(skipped(128));
  EXPECT_TRUE(skipped(0x1p40));
  EXPECT_FALSE(skipped(0x1p40, Element::kF32));
  EXPECT_FALSE(skipped(0x1p40, Element::kBf16));
  const std::vector<float> bias = c.dense()[1];
  c.dense()[1][0] = 1e6f;
  EXPECT_TRUE(skipped(1));
  c.dense()[1] = bias;
  c.dense()[2][0] = 1e6f;
  EXPECT_TRUE(skipped(1));
}

}  // namespace
}  // namespace sluice::cuda
