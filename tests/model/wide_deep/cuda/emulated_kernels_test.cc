// Runs the kernels of the .cu files, with their grid loops, barriers and shuffles, on an emulated
// device. They must match plain loops over the same functions to the bit, and the CPU backend's
// results within tolerance.
#include <cstring>

#include "gmock/gmock.h"
#include "tests/model/wide_deep/cuda/backend_cases.h"
#include "tests/model/wide_deep/cuda/emulated_ops.h"
#include "tests/model/wide_deep/cuda/host_net.h"

namespace sluice::cuda {
namespace {

using EmulatedNet = StepNet<EmulatedOps>;

void ExpectSameBits(const WideDeepShape& shape, Element element, size_t n, size_t num_rows) {
  SCOPED_TRACE(testing::Message() << n << " examples, " << num_rows << " rows");
  NetCase c(shape, num_rows);
  const TestStep step = c.Step(n);
  HostNet host(shape, element);
  EmulatedNet emulated(shape, element);
  const OwnedGradients a = Train(c, &host, step), b = Train(c, &emulated, step);
  EXPECT_EQ(a.view.loss_sum, b.view.loss_sum);
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.dense, b.dense);
  EXPECT_EQ(c.Logits(&host, step), c.Logits(&emulated, step));
}

TEST(EmulatedKernelsTest, SizesThatBreakKernelsGiveTheBitsOfPlainLoops) {
  for (const size_t n : {1, 31, 32, 33, 65, 257, 513})
    ExpectSameBits(SmallShape(), Element::kF32, n, 11);
}

TEST(EmulatedKernelsTest, WidthsThatBreakKernelsGiveTheBitsOfPlainLoops) {
  for (const uint32_t width : {1, 31, 32, 33, 65})
    ExpectSameBits(WideShape({width, 9}, width), Element::kF32, 40, 500);
}

TEST(EmulatedKernelsTest, SixteenBitsAndDropoutGiveTheBitsOfPlainLoops) {
  WideDeepShape shape = WideShape({33, 20, 7}, 5);
  shape.dropout = 0.4f;
  for (const Element element : {Element::kBf16, Element::kFp16})
    ExpectSameBits(shape, element, 100, 30);
}

TEST(EmulatedKernelsTest, ManyKeysAndManyRowsGiveTheBitsOfPlainLoops) {
  ExpectSameBits(WideShape({8}, 2), Element::kF32, 1500, 3);
  ExpectSameBits(WideShape({8}, 2), Element::kF32, 1500, 5000);
}

TEST(EmulatedKernelsTest, EveryKindOfNetworkAgreesWithTheCpu) {
  ExpectEveryKindAgrees(
      [](const WideDeepShape& shape) { return std::make_unique<EmulatedNet>(shape); });
}

}  // namespace
}  // namespace sluice::cuda
