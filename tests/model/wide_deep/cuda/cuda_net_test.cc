// Tests the CUDA backend on a device: whole-model gradients against the CPU backend and against
// finite differences, training against the CPU, options and errors.
// model/wide_deep/cuda/README.md says how to run it under compute-sanitizer.
#include "model/wide_deep/cuda/cuda_net.h"

#include <cmath>

#include "gmock/gmock.h"
#include "tests/model/net/cuda/gpu_for_test.h"
#include "tests/model/wide_deep/cuda/ahead_cases.h"
#include "tests/model/wide_deep/cuda/backend_cases.h"
#include "tests/model/wide_deep/cuda/pinned_cases.h"
#include "tests/model/wide_deep/cuda/resident_cases.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

NetOptions OptionsForCuda(MatmulPrecision precision = MatmulPrecision::kF32) {
  NetOptions options;
  options.device.kind = ComputeDevice::kCuda;
  options.threads = 2;
  options.precision = precision;
  return options;
}

MakeNet NetOnDevice(MatmulPrecision precision = MatmulPrecision::kF32) {
  return [precision](const WideDeepShape& shape) {
    auto net = CreateCudaNet(shape, OptionsForCuda(precision));
    EXPECT_TRUE(net.ok()) << net.status();
    return *std::move(net);
  };
}

TEST(CudaNetTest, WithoutADeviceTheErrorMatchesThatOfListingDevices) {
  const absl::Status listed = ListCudaDevices().status();
  if (listed.ok()) return;  // a skip would say "no GPU"
  EXPECT_EQ(CreateCudaNet(SmallShape(), OptionsForCuda()).status(), listed);
}

TEST(CudaNetTest, AgreesWithCpuForSizesThatBreakKernels) {
  SLUICE_NEEDS_GPU();
  ExpectSizesAgree(NetOnDevice());
}
TEST(CudaNetTest, AgreesWithCpuForWidthsThatBreakKernels) {
  SLUICE_NEEDS_GPU();
  ExpectWidthsAgree(NetOnDevice());
}
TEST(CudaNetTest, AgreesWithCpuForALargeBatch) {
  SLUICE_NEEDS_GPU();
  ExpectAgreesWithCpu(NetOnDevice(), WideShape({129, 65}, 17), 20000, 3000, 1e-5);
}
TEST(CudaNetTest, AgreesWithCpuWithDropout) {
  SLUICE_NEEDS_GPU();
  ExpectDropoutAgrees(NetOnDevice());
}
TEST(CudaNetTest, ManyKeysAndManyRows) {
  SLUICE_NEEDS_GPU();
  ExpectManyKeysAndRowsAgree(NetOnDevice());
}
TEST(CudaNetTest, AgreesWithFiniteDifferences) {
  SLUICE_NEEDS_GPU();
  ExpectAgreesWithFiniteDifferences(NetOnDevice());
}
TEST(CudaNetTest, EveryKindOfNetwork) {
  SLUICE_NEEDS_GPU();
  ExpectEveryKindAgrees(NetOnDevice());
}
TEST(CudaNetTest, ZeroWeights) {
  SLUICE_NEEDS_GPU();
  ExpectZeroWeightsGiveZeroGradients(NetOnDevice());
}
TEST(CudaNetTest, CellsWithoutKeys) {
  SLUICE_NEEDS_GPU();
  ExpectCellsWithoutKeysAgree(NetOnDevice());
}
TEST(CudaNetTest, NanInAWeightReachesTheLoss) {
  SLUICE_NEEDS_GPU();
  ExpectNanReachesTheLoss(NetOnDevice());
}
TEST(CudaNetTest, Tf32Bf16AndFp16AreCloseInTrainingAndExactInForward) {
  SLUICE_NEEDS_GPU();
  ExpectSixteenBitsAreClose(NetOnDevice(MatmulPrecision::kTf32), 2e-3);
  ExpectSixteenBitsAreClose(NetOnDevice(MatmulPrecision::kBf16), 1e-2);
  ExpectSixteenBitsAreClose(NetOnDevice(MatmulPrecision::kFp16), 2e-3);
}

TEST(CudaNetTest, HiddenWeightGradientsAreReadyFromTheLastLayerOn) {
  SLUICE_NEEDS_GPU();
  ExpectReadyFromTheLastLayerOn(NetOnDevice());
}

TEST(CudaNetTest, ResidentRowsGiveTheSameBitsAsUploadedRows) {
  SLUICE_NEEDS_GPU();
  for (const size_t rows : {1, 31, 32, 33, 257, 20000})
    ExpectResidentRowsGiveTheSameBits(NetOnDevice(), SmallShape(), 300, rows, 3);
  WideDeepShape shape = WideShape({33, 20}, 17);
  shape.dropout = 0.4f;
  for (const MatmulPrecision precision : {MatmulPrecision::kBf16, MatmulPrecision::kFp16})
    ExpectResidentRowsGiveTheSameBits(NetOnDevice(precision), shape, 100, 1000, 3);
  ExpectTheLastWriteIsRead(NetOnDevice());
  ExpectSlotsThatAreNotThereAreRefused(NetOnDevice());
}

TEST(CudaNetTest, RowsInHostMemoryGiveTheSameBitsAsRowsElsewhere) {
  SLUICE_NEEDS_GPU();
  WideDeepShape dropout = WideShape({33, 20}, 17);
  dropout.dropout = 0.4f;
  for (const MatmulPrecision precision :
       {MatmulPrecision::kF32, MatmulPrecision::kBf16, MatmulPrecision::kFp16}) {
    ExpectRowsInHostMemoryGiveTheSameBits(NetOnDevice(precision), SmallShape(), 12);
    ExpectRowsInHostMemoryGiveTheSameBits(NetOnDevice(precision), dropout, 12);
  }
  ExpectHostMemoryOutlivesTheNetwork(NetOnDevice());
}

TEST(CudaNetTest, AnnouncedBatchesChangeNothing) {
  SLUICE_NEEDS_GPU();
  for (const MatmulPrecision precision : {MatmulPrecision::kF32, MatmulPrecision::kBf16})
    ExpectAnnouncedBatchesChangeNothing(NetOnDevice(precision));
}

// There is memory for the second block, or the block is freed for the needs of a step.
TEST(CudaNetTest, AnnouncedBatchesChangeNothingInLittleMemory) {
  SLUICE_NEEDS_GPU();
  NetCase c(WideShape({64, 32}, 16), 60000);
  const SharedStep small = MakeStep(&c, 1000), large = MakeStep(&c, 20000);
  auto plain = NetOnDevice()(c.shape());
  for (const SharedStep& step : {small, large}) Train(c, plain.get(), *step);
  const DeviceStats need = plain->device_stats();
  NetOptions options = OptionsForCuda();
  // There is room for one large block of input but not for two.
  options.device_memory_fraction =
      1.02 * need.bytes_in_use / (need.bytes_limit / options.device_memory_fraction);
  auto net = CreateCudaNet(c.shape(), options);
  ASSERT_TRUE(net.ok()) << net.status();
  for (const SharedStep& step : {small, small, large, small, large}) {
    (*net)->Announce(Coming(c, step == small ? large : small));
    ExpectSameBits(Train(c, net->get(), *step), Train(c, plain.get(), *step));
  }
}

// A step that does not fit on the device is refused; earlier sizes still work.
TEST(CudaNetTest, AStepThatIsTooLargeChangesNothing) {
  SLUICE_NEEDS_GPU();
  NetCase c(WideShape({64, 32}, 16), 3000), more_rows(c.shape(), 60000);
  const SharedStep small = MakeStep(&c, 100), large = MakeStep(&c, 20000);
  const SharedStep with_rows = MakeStep(&more_rows, 90);
  NetOptions options = OptionsForCuda();
  options.max_batch = 16;
  auto plain = *CreateCudaNet(c.shape(), options);
  const OwnedGradients expected = Train(c, plain.get(), *small);
  const OwnedGradients of_rows = Train(more_rows, plain.get(), *with_rows);
  options.device_memory_fraction *=
      1.02 * plain->device_stats().bytes_in_use / plain->device_stats().bytes_limit;
  auto net = *CreateCudaNet(c.shape(), options);
  OwnedGradients gradients(c, 3000);
  for (int i = 0; i < 3; ++i) {
    ExpectSameBits(Train(c, net.get(), *small), expected);
    // More rows with the same keys: gradients grow, activations do not.
    ExpectSameBits(Train(more_rows, net.get(), *with_rows), of_rows);
    const absl::Status status = net->TrainStep(c.Input(*large), 5, 0, &gradients.view);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("train.batch_size"));
  }
}

TEST(CudaNetTest, ANetworkMayEndWhileAnAnnouncedBatchIsUploading) {
  SLUICE_NEEDS_GPU();
  NetCase c(SmallShape(), 3000);
  const SharedStep step = MakeStep(&c, 50), large = MakeStep(&c, 20000);
  const OwnedGradients expected = Train(c, NetOnDevice()(c.shape()).get(), *step);
  // Each network gets the memory of the one before, which must no longer be written.
  for (int i = 0; i < 3; ++i) {
    auto net = NetOnDevice()(c.shape());
    ExpectSameBits(Train(c, net.get(), *step), expected);
    net->Announce(Coming(c, large));
    ExpectSameBits(Train(c, net.get(), *step), expected);
  }
}

TEST(CudaNetTest, ResidentRowsCountAsTheNetworksMemory) {
  SLUICE_NEEDS_GPU();
  auto net = NetOnDevice()(SmallShape());
  const DeviceStats before = net->device_stats();
  auto rows = net->MakeResidentRows(0, 1 << 20);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_GE(net->device_stats().bytes_in_use, before.bytes_in_use + (size_t{16} << 20));
  const absl::Status status = net->MakeResidentRows(0, before.bytes_limit / 16).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  rows->reset();
  EXPECT_EQ(net->device_stats().bytes_in_use, before.bytes_in_use);
}

TEST(CudaNetTest, NoExamplesGiveZeroGradients) {
  SLUICE_NEEDS_GPU();
  NetCase c(SmallShape(), 11);
  const TestStep step = c.Step(0);
  auto net = NetOnDevice()(SmallShape());
  const OwnedGradients got = Train(c, net.get(), step);
  EXPECT_EQ(got.view.weight_sum, 0);
  EXPECT_EQ(got.rows[0], std::vector<float>(got.rows[0].size(), 0.0f));
  EXPECT_TRUE(c.Logits(net.get(), step).empty());
}

// The first run is on streams, the second one captures a graph, and later ones launch it. Other
// batches of the same padded shape run in between.
TEST(CudaNetTest, TheSameBatchGivesTheSameBitsOnStreamsAndAsAGraph) {
  SLUICE_NEEDS_GPU();
  WideDeepShape shape = WideShape({100, 50}, 8);
  shape.dropout = 0.3f;
  NetCase c(shape, 60);
  const TestStep step = c.Step(200), other = c.Step(199);
  auto net = NetOnDevice()(shape);
  const OwnedGradients first = Train(c, net.get(), step);
  for (int i = 0; i < 5; ++i) {
    Train(c, net.get(), other, 5, i);
    const OwnedGradients again = Train(c, net.get(), step);
    EXPECT_EQ(again.rows, first.rows);
    EXPECT_EQ(again.dense, first.dense);
    EXPECT_EQ(again.view.loss_sum, first.view.loss_sum);
  }
}

// Runs SGD on both backends from the same start: 100 steps of 256 examples, learning rate 0.1.
void ExpectTrainsLikeTheCpu(MatmulPrecision precision, double value_tol, double loss_tol) {
  WideDeepShape shape = WideShape({64, 32}, 8);
  shape.dropout = 0.1f;
  NetCase on_cpu(shape, 300), on_gpu(shape, 300);
  auto cpu = on_cpu.Net(), gpu = NetOnDevice(precision)(shape);
  const auto train = [](NetCase* c, DenseNet* net, const TestStep& step, uint32_t i) {
    const OwnedGradients g = Train(*c, net, step, 9, i);
    constexpr float kRate = 0.1f;
    for (size_t j = 0; j < g.rows[0].size(); ++j) c->rows()[j] -= kRate * g.rows[0][j];
    for (size_t t = 0; t < g.dense.size(); ++t) {
      for (size_t j = 0; j < g.dense[t].size(); ++j) c->dense()[t][j] -= kRate * g.dense[t][j];
    }
    return g.view.loss_sum / g.view.weight_sum;
  };
  double first = 0, last_cpu = 0, last_gpu = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    const TestStep step = on_cpu.Step(256);
    last_cpu = train(&on_cpu, cpu.get(), step, i);
    last_gpu = train(&on_gpu, gpu.get(), step, i);
    if (i == 0) first = last_cpu;
  }
  EXPECT_NE(first, last_cpu);
  EXPECT_NEAR(last_gpu, last_cpu, loss_tol);
  ExpectClose(on_gpu.rows(), on_cpu.rows(), value_tol, "rows");
  for (size_t t = 0; t < on_cpu.dense().size(); ++t)
    ExpectClose(on_gpu.dense()[t], on_cpu.dense()[t], value_tol, "dense " + std::to_string(t));
}

TEST(CudaNetTest, HundredStepsOfTrainingStayCloseToTheCpu) {
  SLUICE_NEEDS_GPU();
  ExpectTrainsLikeTheCpu(MatmulPrecision::kF32, 1e-4, 1e-5);
  ExpectTrainsLikeTheCpu(MatmulPrecision::kTf32, 1e-2, 1e-2);
  ExpectTrainsLikeTheCpu(MatmulPrecision::kBf16, 5e-2, 2e-2);
  ExpectTrainsLikeTheCpu(MatmulPrecision::kFp16, 1e-2, 1e-2);
}

TEST(CudaNetTest, Fp16SkipsOverflowsLowersTheScaleAndGivesUp) {
  SLUICE_NEEDS_GPU();
  const WideDeepShape shape = WideShape({40, 30}, 6);
  NetCase c(shape, 50);
  const TestStep step = c.Step(100);
  auto net = NetOnDevice(MatmulPrecision::kFp16)(shape);
  EXPECT_EQ(net->device_stats().loss_scale, 128);
  EXPECT_FALSE(Train(c, net.get(), step).view.skipped);
  c.dense()[1][0] = 1e6f;  // an activation beyond the range of fp16
  for (int i = 0; i < 2; ++i) {
    const OwnedGradients got = Train(c, net.get(), step);
    EXPECT_TRUE(got.view.skipped);
    EXPECT_EQ(got.view.weight_sum, 0);
  }
  EXPECT_EQ(net->device_stats().loss_scale, 64);
  EXPECT_EQ(net->device_stats().skipped_steps, 2u);
  // A network that continues from a checkpoint has this scale at once.
  auto resumed = NetOnDevice(MatmulPrecision::kFp16)(shape);
  ASSERT_TRUE(resumed->RestoreState(*net->SaveState()).ok());
  EXPECT_EQ(resumed->device_stats().loss_scale, 64);
  EXPECT_EQ(resumed->device_stats().skipped_steps, 2u);
  EXPECT_EQ(*resumed->SaveState(), *net->SaveState());
  EXPECT_FALSE(resumed->RestoreState("nonsense").ok());
  EXPECT_EQ(*NetOnDevice(MatmulPrecision::kBf16)(shape)->SaveState(), "");
  absl::Status status;
  OwnedGradients gradients(c, 50);
  for (int i = 0; i < 20 && status.ok(); ++i)
    status = net->TrainStep(c.Input(step), 5, 0, &gradients.view);
  EXPECT_THAT(std::string(status.message()), HasSubstr("use bf16"));
}

TEST(CudaNetTest, StatsCountWorkAndMemory) {
  SLUICE_NEEDS_GPU();
  NetCase c(SmallShape(), 11);
  auto net = NetOnDevice()(SmallShape());
  Train(c, net.get(), c.Step(300));
  const DeviceStats stats = net->device_stats();
  EXPECT_GT(stats.busy_seconds, 0);
  EXPECT_GT(stats.bytes_in_use, 0u);
  EXPECT_LT(stats.bytes_in_use, stats.bytes_limit);
  EXPECT_THAT(net->Describe(), HasSubstr("cuda:0"));
}

TEST(CudaNetTest, MemoryBeyondTheBoundIsRefusedWithBothSizes) {
  SLUICE_NEEDS_GPU();
  NetOptions options = OptionsForCuda();
  options.device_memory_fraction = 1e-3;
  options.max_batch = size_t{1} << 20;
  const absl::Status status = CreateCudaNet(WideShape({1024}, 64), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device_memory_fraction"));
}

TEST(CudaNetTest, RefusesImpossibleOptionsAndMismatchedFeatures) {
  SLUICE_NEEDS_GPU();
  NetOptions options = OptionsForCuda();
  options.device_memory_fraction = 1.5;
  EXPECT_EQ(CreateCudaNet(SmallShape(), options).status().code(),
            absl::StatusCode::kInvalidArgument);
  NetCase c(SmallShape(), 11);
  TestStep step = c.Step(3);
  step.batch.num_numeric = 2;
  std::vector<float> logits(3);
  EXPECT_THAT(
      std::string(NetOnDevice()(SmallShape())->Forward(c.Input(step), logits.data()).message()),
      HasSubstr("2 numbers"));
}

}  // namespace
}  // namespace sluice
