// Tests the host's work around the steps of a network: allocating and freeing memory, failing
// calls, two devices in one thread.
#include "tests/model/wide_deep/cuda/simulated/whole_use.h"

#include <cuda_runtime_api.h>

#include <thread>

#include "common/base/status_macros.h"
#include "gtest/gtest.h"

namespace sluice::cuda::simulated {
namespace {

TEST(WholeUseTest, SteadyStateAllocatesNothing) {
  WholeUse use;
  ASSERT_TRUE(use.Begin(OnDevice()).ok());
  // After two rounds both input blocks have held the largest batch, and both staging blocks of the
  // tables exist.
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(use.Round(3, /*announced=*/true).ok());
  Memory& memory = World::Get().memory();
  const uint64_t before = memory.allocations() - use.allocations();
  const uint64_t bytes = use.net()->device_stats().bytes_in_use;
  EXPECT_EQ(bytes, memory.used(0)) << "the reported bytes are those in use";
  for (const bool announced : {true, false, true}) {
    for (const size_t sizes : {3, 1, 2}) ASSERT_TRUE(use.Round(sizes, announced).ok());
  }
  EXPECT_EQ(memory.allocations() - use.allocations(), before);
  EXPECT_EQ(use.net()->device_stats().bytes_in_use, bytes);
}

TEST(WholeUseTest, EverythingIsFreedEvenWithWorkPending) {
  for (const int rounds : {0, 1, 3}) {
    SCOPED_TRACE(rounds);
    WholeUse use;
    ASSERT_TRUE(use.Begin(OnDevice()).ok());
    for (int i = 0; i < rounds; ++i) ASSERT_TRUE(use.Round(3, /*announced=*/true).ok());
    use.End();
    ExpectEverythingIsGivenBack();
  }
}

// When a call of the runtime fails, either an error is returned, or the call was not needed and the
// results are the same. Everything is freed in both cases.
TEST(WholeUseTest, FailingCallGivesAnErrorOrTheSameResults) {
  World& world = World::Get();
  const auto run = [](WholeUse* use) {
    SLUICE_RETURN_IF_ERROR(use->Begin(OnDevice()));
    SLUICE_RETURN_IF_ERROR(use->Round(2, /*announced=*/true));
    return use->Round(1, /*announced=*/true);
  };
  const std::vector<size_t> sizes = {7, 70};
  WholeUse plain(8, sizes);
  const uint64_t first = world.calls();
  ASSERT_TRUE(run(&plain).ok());
  plain.End();
  const uint64_t calls = world.calls() - first;
  ASSERT_GT(calls, 500u);
  // Fails each of the first 100 calls, then every 23rd.
  size_t told = 0, failed = 0;
  for (uint64_t n = 0; n < calls; n += n < 100 ? 1 : 23, ++failed) {
    SCOPED_TRACE(testing::Message() << "call " << n << " of " << calls);
    WholeUse use(8, sizes);
    world.FailCall(n);
    const absl::Status status = run(&use);
    told += !status.ok();
    if (status.ok()) {
      ASSERT_EQ(use.results(), plain.results());
    } else {
      ASSERT_NE(status.message(), "");
    }
    use.End();
    (void)cudaGetLastError();
    ASSERT_NO_FATAL_FAILURE(ExpectEverythingIsGivenBack());
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GT(told, failed * 3 / 4);
  world.FailCall(UINT64_MAX / 2);
}

// At pace `late`, work runs only when somebody waits for it, so the rest of the step is still open.
TEST(WholeUseTest, GradientsAreReadyBeforeTheStepEnds) {
  if (World::Get().streams().pace() != Pace::kLate) return;
  NetCase c(SmallShape(), 11);
  const TestStep step = c.Step(9);
  auto net = *CreateCudaNet(c.shape(), OnDevice());
  OwnedGradients gradients(c, 11);
  std::vector<bool> busy;
  gradients.view.ready = [&](size_t) { busy.push_back(World::Get().streams().busy()); };
  ASSERT_TRUE(net->TrainStep(c.Input(step), 5, 0, &gradients.view).ok());
  EXPECT_EQ(busy, std::vector<bool>({true, true}));
}

// Counts in microseconds of the simulated device, one for each piece of work.
TEST(WholeUseTest, BusyTimeCoversTheStepAndItsSort) {
  if (World::Get().streams().pace() == Pace::kAnyOrder) return;  // other work may run between
  NetCase c(SmallShape(), 11);
  const SharedStep step = MakeStep(&c, 9);
  auto net = *CreateCudaNet(c.shape(), OnDevice());
  double before = 0;
  const auto busy = [&] {
    Train(c, net.get(), *step);
    const double seconds = net->device_stats().busy_seconds;
    const double spent = seconds - std::exchange(before, seconds);
    return static_cast<int>(spent * 1e6 + 0.5);
  };
  const int plain = busy();
  EXPECT_EQ(busy(), plain) << "the second step runs as a graph";
  net->Announce(Coming(c, step));
  EXPECT_EQ(busy(), plain) << "copies for the next step do not count";
  const int ahead = busy();
  EXPECT_EQ(net->device_stats().steps_ahead, 1u);
  EXPECT_GT(ahead, 15) << "each kernel and product counts";
  // The sort that ran ahead: cells, a pass of three kernels, first keys of rows, and the event.
  EXPECT_EQ(plain - ahead, 6);
}

// Resident rows, or the staging of writes to them, need room while a batch is on its way.
TEST(WholeUseTest, SecondInputBlockIsFreedWhenRowsNeedRoom) {
  NetCase c(SmallShape(), 50);
  const SharedStep step = MakeStep(&c, 2000);
  NetOptions options = OnDevice();
  auto plain = *CreateCudaNet(c.shape(), options);
  const OwnedGradients expected = Train(c, plain.get(), *step);
  const size_t one = plain->device_stats().bytes_in_use;
  plain->Announce(Coming(c, step));
  Train(c, plain.get(), *step);
  const size_t two = plain->device_stats().bytes_in_use, block = two - one;
  const size_t rows = block / 2 / (c.shape().row_dim(0) * sizeof(float));
  options.device_memory_fraction *=
      static_cast<double>(two + block / 4) / plain->device_stats().bytes_limit;
  const std::vector<uint32_t> slots(rows);
  const std::vector<float> values(rows * c.shape().row_dim(0));
  for (const bool stays : {true, false}) {
    SCOPED_TRACE(stays);
    auto net = *CreateCudaNet(c.shape(), options);
    net->Announce(Coming(c, step));
    ExpectSameBits(Train(c, net.get(), *step), expected);
    EXPECT_EQ(net->device_stats().bytes_in_use, two);
    auto resident = net->MakeResidentRows(0, stays ? rows : 1);
    ASSERT_TRUE(resident.ok()) << resident.status();
    if (!stays) {
      ASSERT_TRUE((*resident)->Write(slots.data(), rows, values.data()).ok());
    }
    const size_t bytes = net->device_stats().bytes_in_use;
    EXPECT_LT(bytes, two);
    for (int i = 0; i < 3; ++i) {
      net->Announce(Coming(c, step));
      ExpectSameBits(Train(c, net.get(), *step), expected);
    }
    EXPECT_EQ(net->device_stats().steps_ahead, 0u);
    EXPECT_EQ(net->device_stats().bytes_in_use, bytes);
  }
}

// Each network makes its device current, whichever thread calls it.
TEST(WholeUseTest, TwoDevicesTakeTurnsInOneThread) {
  ASSERT_EQ(World::Get().devices(), 2) << "SIMULATED_CUDA=devices=2";
  const std::vector<size_t> sizes = {40, 150, 7};
  WholeUse alone(90, sizes), first(90, sizes, /*elsewhere=*/1), second(90, sizes, /*elsewhere=*/0);
  ASSERT_TRUE(alone.Begin(OnDevice(0)).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(alone.Round(3, true).ok());
  alone.End();
  ASSERT_TRUE(first.Begin(OnDevice(0)).ok());
  ASSERT_TRUE(second.Begin(OnDevice(1)).ok());
  absl::Status status;
  const auto round = [&](WholeUse* use) { status.Update(use->Round(3, true)); };
  round(&first), round(&second), round(&first);
  std::thread([&] { round(&second); }).join();  // device 0 is current there
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(World::Get().memory().used(1), 0u);
  EXPECT_EQ(first.results(), alone.results());
  EXPECT_EQ(second.results(), alone.results());
  first.End(), second.End();
  ExpectEverythingIsGivenBack();
}

}  // namespace
}  // namespace sluice::cuda::simulated
