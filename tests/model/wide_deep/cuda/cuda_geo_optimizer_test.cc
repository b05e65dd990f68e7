// Compares Geo's local optimizer on a device with UpdateRule: equal bits for all rules and kinds of
// clipping except the global norm; exchanges; growth within a bound.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include "model/net/cuda/cuda_table_device.h"
#include "tests/model/net/cuda/gpu_for_test.h"
#include "tests/model/wide_deep/cuda/geo_cases.h"

namespace sluice::cuda {
namespace {

class CudaPlace : public GeoPlace {
 public:
  explicit CudaPlace(size_t limit) : memory_("cuda:0", limit) {
    EXPECT_TRUE(OpenCudaDevice(0).ok());
    EXPECT_TRUE(up_.Create().ok());
    EXPECT_TRUE(compute_.Create().ok());
  }
  ~CudaPlace() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (float* copy : copies_) cudaFree(copy);
  }
  std::unique_ptr<TableDevice> NewDevice() override {
    CudaTableDevice::Options options;
    options.up = &up_, options.compute = &compute_;
    options.memory = &memory_;
    options.busy_seconds = &busy_seconds_;
    auto device = CudaTableDevice::Create(options);
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }
  const float* Up(const std::vector<float>& values) override {
    float*& copy = copies_[next_++ % 16];
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cudaFree(copy);
    const size_t bytes = values.size() * sizeof(float);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&copy), bytes + 1), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(copy, values.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return copy;
  }
  std::vector<float> Down(const float* values, size_t n) override {
    std::vector<float> here(n);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(here.data(), values, n * sizeof(float), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return here;
  }

 private:
  DeviceMemory memory_;
  Stream up_, compute_;
  std::atomic<double> busy_seconds_{0};
  float* copies_[16] = {};
  size_t next_ = 0;
};

std::unique_ptr<GeoPlace> CudaGeoOptimizerOnDevice(size_t limit = size_t{4} << 30) {
  return std::make_unique<CudaPlace>(limit);
}

TEST(CudaGeoOptimizerTest, EveryRuleMatchesTheCpusBitsOver1000Steps) {
  SLUICE_NEEDS_GPU();
  for (const OptimizerConfig& rule : GeoRules()) {
    SCOPED_TRACE(rule.ShortDebugString());
    GeoCase geo(CudaGeoOptimizerOnDevice(), {{3, 2}, {7}}, {rule, GeoRules()[4]}, {2, 3}, rule);
    for (uint64_t step = 0; step < 1000; ++step) geo.Step(5, step);
    geo.ExpectEqualBits();
  }
}

TEST(CudaGeoOptimizerTest, SizesThatBreakKernelsMatchTheCpusBits) {
  SLUICE_NEEDS_GPU();
  for (const size_t rows : {0, 1, 31, 32, 33, 255, 257, 50001}) {
    SCOPED_TRACE(rows);
    GeoCase geo(CudaGeoOptimizerOnDevice(), {{31}, {32, 33}, {1}, {1024, 512}},
                {GeoRules()[6], GeoRules()[3]}, {1, 16}, GeoRules()[3]);
    for (uint64_t step = 0; step < 4; ++step) geo.Step(rows, step);
    geo.ExpectEqualBits();
  }
}

TEST(CudaGeoOptimizerTest, ExchangesAndTheGlobalNorm) {
  SLUICE_NEEDS_GPU();
  GeoCase geo(CudaGeoOptimizerOnDevice(), {{5, 3}, {2}}, {GeoRules()[6], GeoRules()[4]}, {1, 4},
              GeoRules()[3]);
  for (uint64_t step = 0; step < 30; ++step) {
    geo.Step(step % 7 == 0 ? 0 : 20 + step, step);
    if (step % 3 == 2) geo.Exchange(/*moves_meanwhile=*/step % 2 == 0);
  }
  geo.ExpectEqualBits();
  for (const double limit : {0.5, 1e6}) {
    GeoCase clipped(CudaGeoOptimizerOnDevice(), {{40, 300}, {7}}, {GeoRules()[0], GeoRules()[4]},
                    {1, 16}, GeoRules()[0], limit, /*loss_scale=*/128);
    for (uint64_t step = 0; step < 20; ++step) clipped.Step(700, step);
    clipped.ExpectClose(2e-6);
  }
}

// With so little memory a block first grows through the host's memory and later not at all.
TEST(CudaGeoOptimizerTest, SlotsGrowWithinTheBoundAndAreRefusedBeyond) {
  SLUICE_NEEDS_GPU();
  GeoCase geo(CudaGeoOptimizerOnDevice(size_t{3} << 20), {{5}}, {GeoRules()[0]}, {16},
              GeoRules()[0]);
  for (uint64_t step = 0; step < 8; ++step) geo.Step(500 + 500 * step, step);
  geo.ExpectEqualBits();
  const uint32_t far = 1 << 20;
  const uint8_t fresh = 1;
  const std::vector<float> row(16);
  const absl::Status status = geo.device().FillRows(0, {&far, 1}, &fresh, row.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("geo_cache_rows"));
  geo.ExpectEqualBits();
}

}  // namespace
}  // namespace sluice::cuda
