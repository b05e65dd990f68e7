// Checks CudaTableDevice on a simulated device while kernels are in flight. Blocks grow beside the
// old one, through the host, or not at all.
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "model/net/cuda/cuda_table_device.h"

namespace sluice::cuda {
namespace {

constexpr size_t kFloats = 10000, kBytes = kFloats * sizeof(float);

class TableDeviceTest : public ::testing::Test {
 protected:
  TableDeviceTest() {
    EXPECT_TRUE(up_.Create().ok());
    EXPECT_TRUE(compute_.Create().ok());
  }
  // Blocks and stages may hold `limit` bytes.
  void Make(size_t limit) {
    memory_ = std::make_unique<DeviceMemory>("cuda:0", limit);
    CudaTableDevice::Options options;
    options.up = &up_, options.compute = &compute_;
    options.memory = memory_.get();
    options.busy_seconds = &busy_seconds_;
    auto device = CudaTableDevice::Create(options);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    block_ = device_->NewBlock("numbers");
    ASSERT_TRUE(block_->Reserve(kBytes, false).ok());
  }
  // Writes one value to each float with a kernel that is still in flight on return.
  void Write(float first) {
    std::vector<float> values(kFloats);
    for (size_t i = 0; i < kFloats; ++i) values[i] = first + i;
    const absl::Status status = device_->Run(
        kBytes, [&](char* to) { std::memcpy(to, values.data(), kBytes); },
        [&](const char* from, TableOps* ops) {
          FillArgs args;
          args.values = reinterpret_cast<const float*>(from);
          args.n = 1, args.dim = kFloats;
          args.local = reinterpret_cast<float*>(block_->data());
          ops->Fill(args);
        });
    ASSERT_TRUE(status.ok()) << status;
  }
  void ExpectContents(float first) {
    const absl::Status status = device_->Download(block_->data(), kBytes, [&](const char* from) {
      const auto* const values = reinterpret_cast<const float*>(from);
      for (size_t i = 0; i < kFloats; ++i) ASSERT_EQ(values[i], first + i) << i;
    });
    ASSERT_TRUE(status.ok()) << status;
  }

  Stream up_, compute_;
  std::atomic<double> busy_seconds_{0};
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<TableDevice> device_;
  std::unique_ptr<TableBlock> block_;
};

TEST_F(TableDeviceTest, BlockGrowsBesideTheOldOneAfterItsKernels) {
  Make(20 * kBytes);
  for (size_t times = 2; times < 6; ++times) {
    Write(times);
    ASSERT_TRUE(block_->Reserve(times * kBytes, /*keep=*/true).ok());
    ExpectContents(times);
  }
}

TEST_F(TableDeviceTest, BlockWithoutKeepGrowsAfterItsKernels) {
  Make(20 * kBytes);
  for (size_t times = 2; times < 6; ++times) {
    Write(times);
    ASSERT_TRUE(block_->Reserve(times * kBytes, /*keep=*/false).ok());
  }
  Write(7);
  ExpectContents(7);
}

// The block and one stage are held. A block of 3 does not fit beside the old block of 1, but fits
// in its place.
TEST_F(TableDeviceTest, BlockGrowsThroughTheHostWhenBothDoNotFit) {
  Make(4 * kBytes);
  Write(3);
  ASSERT_TRUE(block_->Reserve(3 * kBytes, /*keep=*/true).ok());
  EXPECT_GE(block_->capacity(), 3 * kBytes);
  ExpectContents(3);
  const absl::Status status = block_->Reserve(4 * kBytes, /*keep=*/true);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GE(block_->capacity(), 3 * kBytes);
  ExpectContents(3);
}

// The limit has room but the device has none, and nothing is lost.
TEST_F(TableDeviceTest, FailedGrowthThroughTheHostRestoresTheBlock) {
  Make(4 * kBytes);
  Write(3);
  size_t there = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&there, &total), cudaSuccess);
  void* others = nullptr;
  ASSERT_EQ(cudaMalloc(&others, there - kBytes / 2), cudaSuccess);
  EXPECT_EQ(device_->BytesLeft(), kBytes / 2) << "less than the limit leaves";
  const absl::Status status = block_->Reserve(3 * kBytes, /*keep=*/true);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(block_->capacity(), kBytes);
  ExpectContents(3);
  EXPECT_EQ(cudaFree(others), cudaSuccess);
  EXPECT_EQ(device_->BytesLeft(), 2 * kBytes);
  ASSERT_TRUE(block_->Reserve(3 * kBytes, /*keep=*/true).ok());
  ExpectContents(3);
}

// Two stages take turns; each is filled again only when its kernels have ended.
TEST_F(TableDeviceTest, StagesAreReusedAfterTheirKernelsHaveEnded) {
  Make(20 * kBytes);
  std::vector<std::unique_ptr<TableBlock>> blocks;
  for (int i = 0; i < 6; ++i) {
    Write(100 * i);
    blocks.push_back(std::exchange(block_, device_->NewBlock("numbers")));
    ASSERT_TRUE(block_->Reserve(kBytes, false).ok());
  }
  for (int i = 0; i < 6; ++i) {
    block_ = std::move(blocks[i]);
    ExpectContents(100 * i);
  }
  EXPECT_GT(busy_seconds_, 0);
}

}  // namespace
}  // namespace sluice::cuda
