// Tests the simulated CUDA runtime itself, because other tests are only as good as it is.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/model/wide_deep/cuda/simulated/world.h"

namespace sluice::cuda::simulated {
namespace {

// Streams at one pace, and the names of the work that has run on them.
struct Workshop {
  explicit Workshop(Pace pace, uint64_t seed = 1)
      : streams(
            pace, seed, [this] { ++opened; }, [this] { ++closed; }) {}
  void Put(Stream* stream, int name) {
    streams.Put(stream, [this, name] { ran.push_back(name); });
  }
  std::vector<int> ran;
  int opened = 0, closed = 0;
  Streams streams;
};

TEST(SimulatedStreamsTest, LateWorkRunsWithItsPredecessorsAtTheWait) {
  Workshop shop(Pace::kLate);
  Stream a, b, c;
  Event event;
  shop.Put(&a, 1);
  shop.streams.Record(&event, &a);
  shop.Put(&a, 2);
  shop.streams.HoldBack(&b, event);
  shop.Put(&b, 3);
  shop.Put(&c, 4);
  EXPECT_TRUE(shop.ran.empty());
  shop.streams.Finish(b.last);
  EXPECT_EQ(shop.ran, std::vector<int>({1, 3})) << "only the work that b waits for";
  shop.streams.Finish(b.last);
  EXPECT_EQ(shop.opened, 1) << "there was nothing left to do";
  shop.streams.FinishAll();
  EXPECT_EQ(shop.ran, std::vector<int>({1, 3, 2, 4}));
  EXPECT_EQ(shop.opened, shop.closed);
}

TEST(SimulatedStreamsTest, AtOnceWorkRunsWhenItIsPut) {
  Workshop shop(Pace::kAtOnce);
  Stream a, b;
  shop.Put(&a, 1);
  shop.Put(&b, 2);
  shop.Put(&a, 3);
  EXPECT_EQ(shop.ran, std::vector<int>({1, 2, 3}));
}

// Many seeds together produce every order that is allowed and no other.
TEST(SimulatedStreamsTest, AnyOrderRespectsStreamsAndEvents) {
  bool b_before_a = false, b_after_a = false, something_waits = false;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Workshop shop(Pace::kAnyOrder, seed);
    Stream a, b, c;
    Event event;
    shop.Put(&a, 1);
    shop.streams.Record(&event, &a);
    shop.Put(&b, 2);
    shop.streams.HoldBack(&c, event);
    shop.Put(&c, 3);
    shop.Put(&a, 4);
    something_waits |= shop.ran.size() < 4;
    shop.streams.FinishAll();
    ASSERT_EQ(shop.ran.size(), 4u);
    const auto at = [&](int name) {
      return std::find(shop.ran.begin(), shop.ran.end(), name) - shop.ran.begin();
    };
    EXPECT_LT(at(1), at(3)) << "c is held back for the event";
    EXPECT_LT(at(1), at(4)) << "the order of a stream";
    (at(2) < at(1) ? b_before_a : b_after_a) = true;
  }
  EXPECT_TRUE(b_before_a);
  EXPECT_TRUE(b_after_a);
  EXPECT_TRUE(something_waits);
}

TEST(SimulatedStreamsTest, AskingAgainAndAgainFinishesTheWork) {
  for (const Pace pace : {Pace::kLate, Pace::kAtOnce, Pace::kAnyOrder}) {
    Workshop shop(pace);
    Stream a;
    EXPECT_TRUE(shop.streams.Ask(a.last)) << "no work is done";
    for (int i = 0; i < 9; ++i) shop.Put(&a, i);
    int asked = 1;
    while (!shop.streams.Ask(a.last)) ++asked;
    EXPECT_EQ(shop.ran.size(), 9u);
    EXPECT_TRUE(pace == Pace::kAnyOrder || asked == 1);
    EXPECT_EQ(shop.opened, shop.closed);
  }
}

TEST(SimulatedStreamsTest, EventStandsForItsLastRecord) {
  Workshop shop(Pace::kLate);
  Stream a, b;
  Event event;
  shop.streams.HoldBack(&b, event);  // an unrecorded event holds nothing back
  shop.streams.Record(&event, &a);
  shop.streams.HoldBack(&b, event);
  shop.Put(&a, 1);
  shop.streams.Record(&event, &a);
  shop.Put(&b, 2);  // waits for the first record only
  shop.streams.Finish(b.last);
  EXPECT_EQ(shop.ran, std::vector<int>({2}));
}

// Accesses that the compiler cannot optimize away.
void Touch(void* at) { *static_cast<volatile char*>(at) = 1; }
char Read(const void* at) { return *static_cast<const volatile char*>(at); }

TEST(SimulatedMemoryDeathTest, ForbiddenMemoryCannotBeTouched) {
  const size_t page = 4096;
  Memory memory(1 << 20, /*guarded=*/true);
  char* const block = static_cast<char*>(memory.Allocate(MemoryKind::kDevice, 0, page));
  char* const odd = static_cast<char*>(memory.Allocate(MemoryKind::kPinned, 0, 100));
  EXPECT_EQ(Read(block), static_cast<char>(0xFF)) << "garbage";
  Touch(block), Touch(block + page - 1), Touch(odd + 99);
  EXPECT_DEATH(Touch(block + page), "");
  EXPECT_DEATH(Touch(block - 1), "");
  EXPECT_DEATH(Touch(odd + kAlignment), "")
      << "the guard page begins within one alignment of the end";
  memory.Close();
  EXPECT_DEATH(Touch(block), "");
  EXPECT_DEATH(Read(block), "");
  Touch(odd);  // the host may always touch pinned memory
  char* const later = static_cast<char*>(memory.Allocate(MemoryKind::kDevice, 0, page));
  EXPECT_DEATH(Touch(later), "") << "allocated while memory is closed";
  memory.Open();
  EXPECT_EQ(Read(block), 1) << "closing keeps the contents";
  Touch(later);
  EXPECT_TRUE(memory.Free(MemoryKind::kDevice, block));
  EXPECT_DEATH(Touch(block), "");
}

TEST(SimulatedMemoryTest, CountsUsedBytesAndRefusesMoreThanTheDeviceHas) {
  Memory memory(10000, /*guarded=*/true);
  void* const a = memory.Allocate(MemoryKind::kDevice, 0, 6000);
  EXPECT_EQ(memory.Allocate(MemoryKind::kDevice, 0, 4001), nullptr);
  void* const b = memory.Allocate(MemoryKind::kDevice, 1, 4001);  // on the other device
  void* const c = memory.Allocate(MemoryKind::kPinned, 0, 100000);
  ASSERT_TRUE(a != nullptr && b != nullptr && c != nullptr);
  EXPECT_EQ(memory.used(0), 6000u);
  EXPECT_EQ(memory.used(1), 4001u);
  EXPECT_EQ(memory.allocations(), 3u);
  EXPECT_EQ(memory.blocks(MemoryKind::kDevice), 2u);
  EXPECT_EQ(memory.blocks(MemoryKind::kPinned), 1u);
  EXPECT_TRUE(memory.Holds(MemoryKind::kDevice, 0, static_cast<char*>(a) + 1, 5999));
  EXPECT_FALSE(memory.Holds(MemoryKind::kDevice, 0, static_cast<char*>(a) + 1, 6000));
  EXPECT_FALSE(memory.Holds(MemoryKind::kDevice, 1, a, 1)) << "the block is on another device";
  EXPECT_FALSE(memory.Free(MemoryKind::kPinned, a)) << "the block is of another kind";
  EXPECT_TRUE(memory.Free(MemoryKind::kDevice, a));
  EXPECT_FALSE(memory.Free(MemoryKind::kDevice, a)) << "a second time";
  EXPECT_EQ(memory.used(0), 0u);
}

class SimulatedRuntimeTest : public ::testing::Test {
 protected:
  SimulatedRuntimeTest() {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&device_, 64), cudaSuccess);
    EXPECT_EQ(cudaHostAlloc(&pinned_, 64, cudaHostAllocDefault), cudaSuccess);
  }
  ~SimulatedRuntimeTest() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaFree(device_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
  }
  cudaError_t Up() {
    return cudaMemcpyAsync(device_, pinned_, 64, cudaMemcpyHostToDevice, stream_);
  }
  cudaStream_t stream_ = nullptr;
  void *device_ = nullptr, *pinned_ = nullptr;
};

TEST_F(SimulatedRuntimeTest, ForbiddenCallBreaksACapture) {
  void* more = nullptr;
  const std::vector<std::function<cudaError_t()>> forbidden = {
      [&] { return cudaMalloc(&more, 1); },
      [&] { return cudaFree(device_); },
      [&] { return cudaHostAlloc(&more, 1, cudaHostAllocDefault); },
      [&] { return cudaMemcpy(device_, pinned_, 64, cudaMemcpyHostToDevice); },
      [&] { return cudaStreamSynchronize(stream_); },
      [&] { return cudaDeviceSynchronize(); },
  };
  for (size_t i = 0; i <= forbidden.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(Up(), cudaSuccess);
    if (i < forbidden.size()) {
      EXPECT_EQ(forbidden[i](), cudaErrorStreamCaptureUnsupported);
    }
    cudaGraph_t graph = nullptr;
    const cudaError_t end = cudaStreamEndCapture(stream_, &graph);
    EXPECT_EQ(end, i < forbidden.size() ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    if (graph != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
  }
}

TEST_F(SimulatedRuntimeTest, CapturedWorkRunsWhenTheGraphIsLaunched) {
  std::memset(pinned_, 1, 64);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(Up(), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  char here[64] = {};
  const auto down = [&] {
    EXPECT_EQ(cudaMemcpy(here, device_, 64, cudaMemcpyDeviceToHost), cudaSuccess);
    return here[0];
  };
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_NE(down(), 1);
  for (const char value : {2, 3}) {
    std::memset(pinned_, value, 64);
    EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(down(), value);
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(SimulatedRuntimeTest, InvalidCopiesAreRefused) {
  char unpinned[64];
  const auto copy = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream_);
  };
  EXPECT_EQ(copy(device_, pinned_, 65, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(device_, unpinned, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(pinned_, device_, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(unpinned, device_, 64, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(copy(pinned_, device_, 64, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue) << "the error stays until it is read";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(SimulatedRuntimeTest, ElapsedTimeNeedsTwoTimedEventsThatHaveOccurred) {
  cudaEvent_t begin = nullptr, end = nullptr, untimed = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&begin, cudaEventDefault), cudaSuccess);
  EXPECT_EQ(cudaEventCreateWithFlags(&end, cudaEventDefault), cudaSuccess);
  EXPECT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(begin, stream_), cudaSuccess);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(Up(), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(end, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(untimed, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  EXPECT_FLOAT_EQ(milliseconds, 0.010f) << "one microsecond for each piece of work";
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, untimed), cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {begin, end, untimed}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(SimulatedRuntimeTest, FailCallFailsExactlyOneCall) {
  World::Get().FailCall(1);
  EXPECT_EQ(Up(), cudaSuccess);
  EXPECT_NE(Up(), cudaSuccess);
  EXPECT_EQ(Up(), cudaSuccess);
  EXPECT_NE(cudaGetLastError(), cudaSuccess);
}

TEST_F(SimulatedRuntimeTest, MemoryAndStreamsBelongToTheCurrentDevice) {
  ASSERT_EQ(World::Get().devices(), 2) << "SIMULATED_CUDA=devices=2";
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(Up(), cudaErrorInvalidValue) << "memory of device 0";
  EXPECT_EQ(cudaMemcpyAsync(pinned_, pinned_, 0, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidResourceHandle)
      << "a stream of device 0";
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(Up(), cudaSuccess);
}

TEST(SimulatedDevicesTest, VisibleDevicesEndAtTheFirstMissingOne) {
  ASSERT_EQ(World::Get().devices(), 2) << "SIMULATED_CUDA=devices=2";
  const auto uuids = [](const char* visible) {
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    int count = -1;
    const cudaError_t error = cudaGetDeviceCount(&count);
    EXPECT_EQ(error, count == 0 ? cudaErrorNoDevice : cudaSuccess);
    std::vector<int> last_bytes;
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp properties;
      EXPECT_EQ(cudaGetDeviceProperties(&properties, i), cudaSuccess);
      last_bytes.push_back(properties.uuid.bytes[15]);
    }
    EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return last_bytes;
  };
  EXPECT_EQ(uuids("0,1"), std::vector<int>({0, 1}));
  EXPECT_EQ(uuids("1,0"), std::vector<int>({1, 0}));
  EXPECT_EQ(uuids("1"), std::vector<int>({1}));
  EXPECT_EQ(uuids("0,2,1"), std::vector<int>({0}));
  EXPECT_EQ(uuids(""), std::vector<int>());
  EXPECT_EQ(uuids("-1"), std::vector<int>());
}

TEST_F(SimulatedRuntimeTest, AllocationNeedsAChosenDevice) {
  const auto allocate = [] {
    void* block = nullptr;
    (void)cudaHostAlloc(&block, 1, cudaHostAllocDefault);
  };
  EXPECT_DEATH(std::thread(allocate).join(), "has chosen no device");
}

}  // namespace
}  // namespace sluice::cuda::simulated
