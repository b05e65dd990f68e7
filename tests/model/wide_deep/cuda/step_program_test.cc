// Runs the whole step of the CUDA backend on the host, with the device's own indexing code, and
// compares it with the CPU backend and the float64 reference.
#include "model/wide_deep/cuda/step_program.h"

#include "gmock/gmock.h"
#include "tests/model/wide_deep/cuda/backend_cases.h"
#include "tests/model/wide_deep/cuda/host_net.h"

namespace sluice::cuda {
namespace {

MakeNet ProgramOnHost(Element element = Element::kF32, double loss_scale = 1) {
  return [=](const WideDeepShape& shape) {
    return std::make_unique<HostNet>(shape, element, loss_scale);
  };
}

TEST(StepProgramTest, AgreesWithCpuForSizesThatBreakKernels) { ExpectSizesAgree(ProgramOnHost()); }
TEST(StepProgramTest, AgreesWithCpuForWidthsThatBreakKernels) {
  ExpectWidthsAgree(ProgramOnHost());
}
TEST(StepProgramTest, AgreesWithCpuWithDropout) { ExpectDropoutAgrees(ProgramOnHost()); }
TEST(StepProgramTest, ManyKeysAndManyRows) { ExpectManyKeysAndRowsAgree(ProgramOnHost()); }
TEST(StepProgramTest, AgreesWithFiniteDifferences) {
  ExpectAgreesWithFiniteDifferences(ProgramOnHost());
}
TEST(StepProgramTest, EveryKindOfNetwork) { ExpectEveryKindAgrees(ProgramOnHost()); }
TEST(StepProgramTest, ZeroWeights) { ExpectZeroWeightsGiveZeroGradients(ProgramOnHost()); }
TEST(StepProgramTest, CellsWithoutKeys) { ExpectCellsWithoutKeysAgree(ProgramOnHost()); }
TEST(StepProgramTest, NanInAWeightReachesTheLoss) { ExpectNanReachesTheLoss(ProgramOnHost()); }
TEST(StepProgramTest, Bf16) { ExpectSixteenBitsAreClose(ProgramOnHost(Element::kBf16), 1e-2); }
TEST(StepProgramTest, Fp16) { ExpectSixteenBitsAreClose(ProgramOnHost(Element::kFp16, 128), 2e-3); }

TEST(StepProgramTest, HiddenWeightGradientsAreReadyFromTheLastLayerOn) {
  ExpectReadyFromTheLastLayerOn(ProgramOnHost());
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
