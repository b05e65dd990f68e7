// Tests the network's host memory, and that the host does not copy rows that lie in it.
#include "model/net/cuda/pinned_memory.h"

#include <thread>

#include "tests/model/wide_deep/cuda/pinned_cases.h"
#include "tests/model/wide_deep/cuda/simulated/whole_use.h"

namespace sluice::cuda::simulated {
namespace {

TEST(PinnedMemoryTest, HoldsRangesThatLieWhollyInABlock) {
  PinnedMemory memory(0);
  char* const block = static_cast<char*>(memory.Allocate(1000));
  char* const other = static_cast<char*>(memory.Allocate(10));
  EXPECT_TRUE(memory.Holds(block, 1000));
  EXPECT_TRUE(memory.Holds(block + 999, 1));
  EXPECT_TRUE(memory.Holds(block + 1000, 0));
  EXPECT_FALSE(memory.Holds(block, 1001));
  EXPECT_FALSE(memory.Holds(block + 1, 1000));
  EXPECT_FALSE(memory.Holds(block + 1001, 0));
  EXPECT_FALSE(memory.Holds(block - 1, 1));
  EXPECT_TRUE(memory.Holds(other, 10));
  memory.Free(block);
  EXPECT_FALSE(memory.Holds(block, 1));
  EXPECT_TRUE(memory.Holds(other, 10));
  memory.Free(other);
  EXPECT_FALSE(memory.Holds(other, 1));
}

TEST(PinnedMemoryTest, AnyThreadAllocatesAndFrees) {
  PinnedMemory memory(0);
  void* block = nullptr;
  std::thread([&] { block = memory.Allocate(100); }).join();
  EXPECT_TRUE(memory.Holds(block, 100));
  std::thread([&] { memory.Free(block); }).join();
  EXPECT_FALSE(memory.Holds(block, 100));
}

TEST(PinnedMemoryTest, FailedAllocationIsNull) {
  PinnedMemory memory(0);
  World::Get().FailCall(1);  // call 0 chooses the device
  EXPECT_EQ(memory.Allocate(100), nullptr);
  HostArray array;
  World::Get().FailCall(1);
  array.Resize(100, std::make_shared<PinnedMemory>(0));
  array.data()[99] = 1;
}

TEST(PinnedMemoryTest, OnlyTheDeviceCopiesRows) {
  const WideDeepShape shape = SmallShape();
  NetCase c(shape, 50);
  const TestStep step = c.Step(30);
  for (const MatmulPrecision precision : {MatmulPrecision::kF32, MatmulPrecision::kFp16}) {
    NetOptions options = OnDevice();
    options.precision = precision;
    auto net = *CreateCudaNet(shape, options);
    HostArray rows, gradients;
    NetInput input = c.Input(step);
    float* const here = Among(&rows, 1, c.rows().size(), net.get());
    float* const there = Among(&gradients, 3, c.rows().size(), net.get());
    std::copy(c.rows().begin(), c.rows().end(), here);
    input.rows[0].values = here;
    OwnedGradients got(c, input);
    got.view.rows[0] = there;
    World::Get().ForgetCopies();  // the blocks may have the addresses of the last round's
    ASSERT_TRUE(net->TrainStep(input, 5, 2, &got.view).ok());
    EXPECT_TRUE(World::Get().Copied(here));
    // fp16 gradients must be unscaled on the host, so they do not go to the caller directly.
    EXPECT_EQ(World::Get().Copied(there), precision != MatmulPrecision::kFp16);
  }
}

}  // namespace
}  // namespace sluice::cuda::simulated
