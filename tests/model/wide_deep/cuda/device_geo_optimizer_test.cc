// Tests Geo's local optimizer with the device's own classes on an emulated device: equal bits with
// UpdateRule for all rules, kinds of clipping and sizes; deltas and merges; memory.
#include "model/wide_deep/cuda/device_geo_optimizer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/model/wide_deep/cuda/emulated_tables.h"
#include "tests/model/wide_deep/cuda/geo_cases.h"

namespace sluice::cuda {
namespace {

using ::testing::HasSubstr;

class EmulatedPlace : public GeoPlace {
 public:
  explicit EmulatedPlace(std::shared_ptr<EmulatedMemory> memory) : memory_(std::move(memory)) {}
  std::unique_ptr<TableDevice> NewDevice() override {
    return std::make_unique<EmulatedTableDevice>(memory_);
  }
  const float* Up(const std::vector<float>& values) override {
    std::vector<float>& copy = copies_[next_++ % 16];
    copy = values;
    return copy.data();
  }
  std::vector<float> Down(const float* values, size_t n) override { return {values, values + n}; }

 private:
  const std::shared_ptr<EmulatedMemory> memory_;
  std::vector<float> copies_[16];
  size_t next_ = 0;
};

std::unique_ptr<GeoPlace> Emulated(
    std::shared_ptr<EmulatedMemory> memory = std::make_shared<EmulatedMemory>()) {
  return std::make_unique<EmulatedPlace>(std::move(memory));
}

TEST(DeviceGeoOptimizerTest, EveryRuleMatchesTheCpusBitsOver1000Steps) {
  for (const OptimizerConfig& rule : GeoRules()) {
    SCOPED_TRACE(rule.ShortDebugString());
    GeoCase geo(Emulated(), {{3, 2}, {7}}, {rule, GeoRules()[4]}, {2, 3}, rule);
    for (uint64_t step = 0; step < 1000; ++step) geo.Step(5, step);
    geo.ExpectEqualBits();
  }
}

TEST(DeviceGeoOptimizerTest, SizesThatBreakKernelsMatchTheCpusBits) {
  for (const size_t rows : {0, 1, 31, 32, 33, 255, 257, 5001}) {
    SCOPED_TRACE(rows);
    GeoCase geo(Emulated(), {{31}, {32, 33}, {1}, {257, 3}}, {GeoRules()[6], GeoRules()[3]},
                {1, 10}, GeoRules()[3]);
    for (uint64_t step = 0; step < 4; ++step) geo.Step(rows, step);
    geo.ExpectEqualBits();
  }
}

TEST(DeviceGeoOptimizerTest, RowsOfDifferentAgesHaveTheirOwnBiasCorrections) {
  GeoCase geo(Emulated(), {{2}}, {GeoRules()[3]}, {3}, GeoRules()[3]);
  for (uint64_t step = 0; step < 40; ++step) geo.Step(1 + step % 9, step);
  geo.ExpectEqualBits();
  // With counts beyond the number of rows, each row's correction is computed on its own.
  for (uint64_t step = 0; step < 5; ++step) geo.Step(3, step, /*count_step=*/5000);
  geo.ExpectEqualBits();
}

TEST(DeviceGeoOptimizerTest, TheGlobalNormIsClippedAsOnTheWorkersCpu) {
  for (const double limit : {0.5, 1e6}) {
    GeoCase geo(Emulated(), {{40, 300}, {7}}, {GeoRules()[0], GeoRules()[4]}, {1, 16},
                GeoRules()[0], limit);
    for (uint64_t step = 0; step < 20; ++step) geo.Step(700, step);
    geo.ExpectClose(2e-6);
  }
}

TEST(DeviceGeoOptimizerTest, TheGlobalNormCoversAnyNumberOfValues) {
  std::mt19937_64 random(5);
  for (const size_t n : {1, 31, 32, 33, 255, 257, 8191, 8193, 5 * 8192 + 7}) {
    std::vector<float> values(n);
    double squared = 0;
    for (float& value : values) {
      value = std::normal_distribution<float>(0, 1)(random);
      squared += 4.0 * value * value;
    }
    EmulatedTableOps ops;
    SquaresArgs squares;
    squares.values = values.data(), squares.n = n, squares.factor = 2;
    std::vector<double> partials(squares.tiles(), std::nan(""));
    squares.partials = partials.data();
    ops.Squares(squares);
    NormArgs norm;
    float global = std::nanf("");
    norm.partials = partials.data(), norm.n = partials.size();
    norm.limit = 0.01, norm.global = &global;
    ops.Norm(norm);
    EXPECT_FLOAT_EQ(global, static_cast<float>(0.01 / std::sqrt(squared))) << n;
  }
  // There are more partial sums than threads in the last kernel.
  const std::vector<double> partials(1000, 0.25);
  NormArgs norm;
  float global = 0;
  norm.partials = partials.data(), norm.n = partials.size();
  norm.limit = 1, norm.global = &global;
  EmulatedTableOps().Norm(norm);
  EXPECT_FLOAT_EQ(global, static_cast<float>(1 / std::sqrt(250.0)));
}

TEST(DeviceGeoOptimizerTest, ScaledGradientsAreDividedByTheLossScale) {
  GeoCase geo(Emulated(), {{9}}, {GeoRules()[3]}, {4}, GeoRules()[3], 0.5, /*loss_scale=*/128);
  for (uint64_t step = 0; step < 20; ++step) geo.Step(10, step);
  geo.ExpectClose(2e-6);
}

TEST(DeviceGeoOptimizerTest, ExchangesMatchTheCpusBits) {
  GeoCase geo(Emulated(), {{5, 3}, {2}}, {GeoRules()[6], GeoRules()[4]}, {1, 4}, GeoRules()[3]);
  for (uint64_t step = 0; step < 30; ++step) {
    geo.Step(step % 7 == 0 ? 0 : 20 + step, step);
    if (step % 3 == 2) geo.Exchange(/*moves_meanwhile=*/step % 2 == 0);
  }
  geo.ExpectEqualBits();
}

TEST(DeviceGeoOptimizerTest, StateThatIsCopiedOutAndBackIsTheSame) {
  for (const size_t rule : {0, 3, 4, 6}) {
    GeoCase geo(Emulated(), {{5, 3}, {2}}, {GeoRules()[rule], GeoRules()[3]}, {1, 4},
                GeoRules()[rule]);
    for (uint64_t step = 0; step < 30; ++step) {
      geo.Step(20 + step, step);
      if (step % 10 == 5) geo.CopyState();
    }
    geo.ExpectEqualBits();
  }
}

TEST(DeviceGeoOptimizerTest, AnUpdateNeedsTheGradientsOfAStep) {
  GeoCase geo(Emulated(), {{5}}, {GeoRules()[0]}, {2}, GeoRules()[0]);
  geo.Step(3, 0);
  GeoUpdate update;
  const uint32_t slots[3] = {0, 1, 2};
  const uint64_t counts[3] = {9, 9, 9};
  update.rows.resize(1);
  update.rows[0].slots = slots, update.rows[0].counts = counts, update.rows[0].n = 3;
  EXPECT_EQ(geo.device().Update(update).code(), absl::StatusCode::kFailedPrecondition);
  geo.ExpectEqualBits();
}

// Fills the first n slots with zeros.
absl::Status FillFirst(GeoCase* geo, size_t n) {
  const std::vector<float> values(64 * n);
  const std::vector<uint8_t> fresh(n, 1);
  std::vector<uint32_t> slots;
  for (uint32_t i = 0; i < n; ++i) slots.push_back(i);
  return geo->device().FillRows(0, {slots.data(), n}, fresh.data(), values.data());
}

TEST(DeviceGeoOptimizerTest, RowsThatDoNotFitAreRefusedNamingTheFieldToLower) {
  const auto memory = std::make_shared<EmulatedMemory>();
  // A row has 2 floats and 2 floats of state: 24 bytes a slot in three blocks.
  GeoCase geo(Emulated(memory), {{5}}, {GeoRules()[5]}, {2}, GeoRules()[0]);
  EXPECT_TRUE(FillFirst(&geo, 100).ok());
  const size_t used = memory->used;
  // Growth by half fits in one block but not in all three; the needed slots do.
  memory->limit = used + 20 * 24 + 23;
  EXPECT_TRUE(FillFirst(&geo, 120).ok());
  EXPECT_EQ(memory->used, used + 20 * 24);
  const absl::Status status = FillFirst(&geo, 121);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("geo_cache_rows"));
}

TEST(DeviceGeoOptimizerTest, GrowthLeavesRoomForStepsAndExchanges) {
  const auto memory = std::make_shared<EmulatedMemory>();
  GeoCase geo(Emulated(memory), {{5}}, {GeoRules()[5]}, {2}, GeoRules()[0]);
  EXPECT_TRUE(FillFirst(&geo, 100).ok());
  memory->limit = memory->used + 60 * 24;
  EXPECT_TRUE(FillFirst(&geo, 101).ok());  // growth by half takes 50 of the 60
  EXPECT_EQ(memory->limit - memory->used, 30 * 24u);
}

TEST(DeviceGeoOptimizerTest, RowsSurviveGrowthThatDoesNotFitOnTheDevice) {
  const auto memory = std::make_shared<EmulatedMemory>();
  GeoCase geo(Emulated(memory), {{5}}, {GeoRules()[5]}, {2}, GeoRules()[0]);
  for (uint64_t step = 0; step < 5; ++step) geo.Step(50, step);
  memory->there = memory->used;
  EXPECT_EQ(FillFirst(&geo, 500).code(), absl::StatusCode::kResourceExhausted);
  geo.ExpectEqualBits();
  memory->there = SIZE_MAX;
  for (uint64_t step = 5; step < 10; ++step) geo.Step(200, step);
  geo.ExpectEqualBits();
}

TEST(DeviceGeoOptimizerTest, LostRowsAreNeverTrainedOn) {
  const auto memory = std::make_shared<EmulatedMemory>();
  GeoCase geo(Emulated(memory), {{5}}, {GeoRules()[5]}, {2}, GeoRules()[0]);
  EXPECT_TRUE(FillFirst(&geo, 100).ok());
  // There is too little memory for both blocks, and then for the old block alone.
  memory->there = memory->used;
  memory->taken_when_freed = 100 * 24;
  EXPECT_EQ(FillFirst(&geo, 120).code(), absl::StatusCode::kDataLoss);
  memory->there = SIZE_MAX;
  memory->taken_when_freed = 0;
  EXPECT_EQ(FillFirst(&geo, 120).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(FillFirst(&geo, 1).code(), absl::StatusCode::kDataLoss);
  std::vector<float> rows(2), dense(5);
  GeoExchange delta;
  delta.rows = {rows.data()}, delta.dense = {dense.data()};
  const uint32_t slot = 0;
  EXPECT_EQ(geo.device().TakeDelta({{&slot, 1}}, delta).code(), absl::StatusCode::kOutOfRange);
}

TEST(DeviceGeoOptimizerTest, TablesOfAnotherNetworkAreRefused) {
  GeoCase geo(Emulated(), {{5}}, {GeoRules()[0]}, {2}, GeoRules()[0]);
  DeviceGradients gradients;
  const NetPlan plan{SmallShape()};
  EXPECT_EQ(DeviceGeoOptimizer::Create(plan, {geo.layouts()[1].get()}, nullptr, 0,
                                       std::make_unique<EmulatedTableDevice>(), &gradients)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::cuda
