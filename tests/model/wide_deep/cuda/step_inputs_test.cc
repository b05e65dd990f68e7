// Tests batches that are uploaded while the step before computes. On the host, copies and sorts run
// as late as possible or at once; the bits must equal those of steps that upload their own batch.
#include "model/wide_deep/cuda/step_inputs.h"

#include "gmock/gmock.h"
#include "tests/model/wide_deep/cuda/ahead_cases.h"
#include "tests/model/wide_deep/cuda/emulated_tables.h"

namespace sluice::cuda {
namespace {

std::unique_ptr<HostNet> Host(const WideDeepShape& shape, Pace pace, size_t limit = SIZE_MAX) {
  auto net = std::make_unique<HostNet>(shape, Element::kF32, 1, pace, limit);
  net->table_device = [] { return std::make_unique<EmulatedTableDevice>(); };
  return net;
}

MakeNet OnHost(Pace pace) {
  return [pace](const WideDeepShape& shape) { return Host(shape, pace); };
}

TEST(StepInputsTest, AnnouncedBatchesChangeNothingWhenCopiesAndSortsAreLate) {
  ExpectAnnouncedBatchesChangeNothing(OnHost(Pace::kLate));
}

TEST(StepInputsTest, AnnouncedBatchesChangeNothingWhenCopiesAndSortsRunDuringTheStep) {
  ExpectAnnouncedBatchesChangeNothing(OnHost(Pace::kAtOnce));
}

TEST(StepInputsTest, KernelsGiveTheSameBits) {
  for (const Pace pace : {Pace::kLate, Pace::kAtOnce}) {
    const auto emulated = [pace](const WideDeepShape& shape) {
      return std::make_unique<StepNet<EmulatedOps>>(shape, Element::kF32, 1, pace);
    };
    ExpectAStreamOfBatchesGivesTheSameBits(emulated, SmallShape(), 150, /*rounds=*/1);
  }
}

TEST(StepInputsTest, PinnedRowsAreUploadedFromTheCallersMemory) {
  for (const Pace pace : {Pace::kLate, Pace::kAtOnce}) {
    NetCase c(SmallShape(), 60);
    auto net = Host(c.shape(), pace), plain = Host(c.shape(), pace);
    net->input_device().reaches = true;
    for (int i = 0; i < 4; ++i) {
      const TestStep step = c.Step(20 + 30 * i);
      ExpectSameBits(Train(c, net.get(), step), Train(c, plain.get(), step));
      EXPECT_EQ(c.Logits(net.get(), step), c.Logits(plain.get(), step));
    }
    EXPECT_EQ(net->input_device().reached, 8);
    EXPECT_EQ(plain->input_device().reached, 0);
    // Resident rows are not uploaded.
    auto resident = *net->MakeResidentRows(0, 100);
    const TestStep step = c.Step(9);
    const std::vector<uint32_t> slots = Place(&c, step, resident.get(), 1);
    ExpectSameBits(TrainOn(c, net.get(), ResidentInput(c, step, resident.get(), slots)),
                   Train(c, plain.get(), step, 5, 2));
    EXPECT_EQ(net->input_device().reached, 8);
  }
}

// With fp16 the loss scale may change each step, so it is uploaded with the values.
TEST(StepInputsTest, AnOverflowLeavesTheNextStepItsBatch) {
  NetCase c(WideShape({40, 30}, 6), 50);
  const SharedStep first = MakeStep(&c, 100), second = MakeStep(&c, 90);
  HostNet net(c.shape(), Element::kFp16, 128), plain(c.shape(), Element::kFp16, 128);
  net.Announce(Coming(c, second));
  c.dense()[1][0] = 1e6f;  // an activation beyond the range of fp16
  EXPECT_TRUE(Train(c, &net, *first).view.skipped);
  c.dense()[1][0] = 0.1f;
  const OwnedGradients got = Train(c, &net, *second);
  EXPECT_FALSE(got.view.skipped);
  ExpectSameBits(got, Train(c, &plain, *second));
  EXPECT_EQ(net.device_stats().steps_ahead, 1u);
}

TEST(StepInputsTest, TheFirstAnnouncementAllocatesTheSecondBlock) {
  NetCase c(SmallShape(), 50);
  const SharedStep step = MakeStep(&c, 100);
  auto net = Host(c.shape(), Pace::kLate);
  for (int i = 0; i < 3; ++i) Train(c, net.get(), *step);
  EXPECT_EQ(net->input_device().bytes(1), 0u);
  net->Announce(Coming(c, step));
  Train(c, net.get(), *step);
  EXPECT_EQ(net->input_device().bytes(1), net->input_device().bytes(0));
}

size_t BytesOf(const WideDeepShape& shape, const NetCase& c, const SharedStep& step) {
  return InputLayout(NetPlan(shape), ShapeOf(step->batch, c.Input(*step).rows[0].n)).total;
}

TEST(StepInputsTest, StepsUploadTheirOwnBatchesWhereTwoBlocksDoNotFit) {
  NetCase c(SmallShape(), 50);
  const SharedStep small = MakeStep(&c, 100), large = MakeStep(&c, 1000);
  auto net = Host(c.shape(), Pace::kLate, 2 * BytesOf(c.shape(), c, large) - 1);
  auto plain = Host(c.shape(), Pace::kLate);
  const auto train = [&](const SharedStep& step, const SharedStep& next) {
    net->Announce(Coming(c, next));
    ExpectSameBits(Train(c, net.get(), *step), Train(c, plain.get(), *step));
  };
  train(small, small);
  train(small, large);
  EXPECT_FALSE(net->device_stats().no_room_ahead);
  train(large, small);  // frees the other block's memory
  EXPECT_TRUE(net->device_stats().no_room_ahead);
  train(small, large);
  train(large, large);
  EXPECT_EQ(net->device_stats().steps_ahead, 2u);
  EXPECT_EQ(net->input_device().bytes(1), 0u);
  EXPECT_EQ(net->input_device().refused, 1);
}

TEST(StepInputsTest, AGrowingStepTakesTheMemoryOfTheBatchAhead) {
  NetCase c(SmallShape(), 50);
  const SharedStep small = MakeStep(&c, 100), large = MakeStep(&c, 1000);
  auto plain = Host(c.shape(), Pace::kLate);
  for (const bool forward : {false, true}) {
    auto net = Host(c.shape(), Pace::kLate, BytesOf(c.shape(), c, large));
    net->Announce(Coming(c, small));
    Train(c, net.get(), *small);
    EXPECT_GT(net->input_device().bytes(1), 0u);
    if (forward) {
      EXPECT_EQ(c.Logits(net.get(), *large), c.Logits(plain.get(), *large));
    } else {
      ExpectSameBits(Train(c, net.get(), *large), Train(c, plain.get(), *large));
    }
    EXPECT_EQ(net->input_device().bytes(1), 0u);
    ExpectSameBits(Train(c, net.get(), *small), Train(c, plain.get(), *small));
  }
}

// This happens before a step without examples, which calls BringNext but uses no block.
TEST(StepInputsTest, WaitsForABatchAheadBeforeReplacingIt) {
  const WideDeepShape shape = SmallShape();
  NetCase c(shape, 50);
  const SharedStep first = MakeStep(&c, 100), second = MakeStep(&c, 90), third = MakeStep(&c, 80);
  std::vector<char> constants(ConstantLayout(shape).total);
  FillConstants(shape, constants.data());
  const StepProgram program(shape, ViewOf(shape, constants.data()), Element::kF32, false);
  HostInputDevice<HostOps> device(&program, Pace::kLate);
  StepInputs inputs(shape, program.plan(), 1, &device);
  ASSERT_TRUE(inputs.Begin(c.Input(*first), /*training=*/true).ok());
  for (const SharedStep& next : {second, third}) {
    inputs.Announce(Coming(c, next));
    inputs.BringNext();  // Reserve fails the test if the block is in use
  }
  ASSERT_TRUE(inputs.Begin(c.Input(*third), /*training=*/true).ok());
  EXPECT_TRUE(inputs.ahead());
}

TEST(StepInputsTest, TheStepRepeatsWhatFailedAhead) {
  NetCase c(SmallShape(), 50);
  const SharedStep step = MakeStep(&c, 100), next = MakeStep(&c, 300);
  auto net = Host(c.shape(), Pace::kLate), plain = Host(c.shape(), Pace::kLate);
  const auto train = [&](const SharedStep& now, const SharedStep& coming) {
    if (coming != nullptr) net->Announce(Coming(c, coming));
    ExpectSameBits(Train(c, net.get(), *now), Train(c, plain.get(), *now));
  };
  train(step, next);
  net->input_device().fail_from = net->input_device().indexed + 1;
  train(next, step);  // the batch ahead is uploaded only in part
  net->input_device().fail_from = INT_MAX;
  train(step, next);
  train(next, nullptr);
  EXPECT_EQ(net->device_stats().steps_ahead, 2u);
}

}  // namespace
}  // namespace sluice::cuda
