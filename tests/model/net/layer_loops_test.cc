// Checks that every version of the loops computes the same bits and the formulas of their header.
#include "model/net/layer_loops.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

struct Results {
  std::vector<float> relu, mask, outer, rounded;
  std::vector<double> sums;
  std::vector<uint16_t> half;
  float dot = 0;
};

class LayerLoopsTest : public ::testing::TestWithParam<size_t> {
 protected:
  LayerLoopsTest() : n_(GetParam()) {
    std::mt19937_64 random(n_);
    for (size_t i = 0; i < n_; ++i) {
      a_.push_back(Value(random()));
      b_.push_back(Value(random()));
    }
  }
  static float Value(uint64_t bits) {
    return static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-52 - 1.0);
  }

  Results Compute(const LayerLoops& loops) const {
    Results r;
    r.relu = r.mask = a_;
    r.outer.resize(n_);
    r.rounded.resize(n_);
    r.half.resize(n_);
    r.sums.assign(n_, 0.25);
    loops.bias_relu(b_.data(), r.relu.data(), n_);
    loops.mask(b_.data(), 1.25f, r.mask.data(), n_);
    loops.outer_mask(a_.data(), b_.data(), 0.3f, 1.25f, r.outer.data(), n_);
    r.dot = loops.dot(a_.data(), b_.data(), n_);
    loops.add_scaled(a_.data(), 0.3, r.sums.data(), n_);
    loops.add(b_.data(), r.sums.data(), n_);
    loops.round(r.sums.data(), 1.0 / 3, r.rounded.data(), n_);
    loops.to_bf16(a_.data(), r.half.data(), n_);
    return r;
  }

  const size_t n_;
  std::vector<float> a_, b_;
};

TEST_P(LayerLoopsTest, BestGivesTheSameBitsAsPortable) {
  const Results portable = Compute(internal::kPortableLayerLoops), best = Compute(BestLayerLoops());
  EXPECT_EQ(portable.relu, best.relu);
  EXPECT_EQ(portable.mask, best.mask);
  EXPECT_EQ(portable.outer, best.outer);
  EXPECT_EQ(portable.rounded, best.rounded);
  EXPECT_EQ(portable.sums, best.sums);
  EXPECT_EQ(portable.half, best.half);
  EXPECT_EQ(std::memcmp(&portable.dot, &best.dot, sizeof(float)), 0);
}

TEST_P(LayerLoopsTest, PortableComputesTheFormulasOfTheHeader) {
  const Results r = Compute(internal::kPortableLayerLoops);
  double dot = 0;
  for (size_t i = 0; i < n_; ++i) {
    EXPECT_EQ(r.relu[i], std::max(a_[i] + b_[i], 0.0f));
    EXPECT_EQ(r.mask[i], b_[i] > 0 ? a_[i] * 1.25f : 0.0f);
    EXPECT_EQ(r.outer[i], a_[i] > 0 ? b_[i] * 0.3f * 1.25f : 0.0f);
    EXPECT_EQ(r.sums[i], 0.25 + static_cast<double>(a_[i]) * 0.3 + b_[i]);
    EXPECT_EQ(r.rounded[i], static_cast<float>(r.sums[i] * (1.0 / 3)));
    uint32_t bits = static_cast<uint32_t>(r.half[i]) << 16;
    float half;
    std::memcpy(&half, &bits, sizeof half);
    EXPECT_LE(std::abs(half - a_[i]), std::abs(a_[i]) / 256);
    dot += static_cast<double>(a_[i]) * b_[i];
  }
  EXPECT_LE(std::abs(r.dot - dot), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LayerLoopsTest, ::testing::Values(0, 1, 13, 16, 100, 400));

TEST(LayerLoopsTest, NanStaysNan) {
  for (const InstructionSet set : SupportedInstructionSetsForTest()) {
    const LayerLoops* const loops = &LayerLoopsFor(set);
    std::vector<float> z(17, std::nanf("")), zero(17, 0.0f);
    loops->bias_relu(zero.data(), z.data(), z.size());
    for (const float v : z) EXPECT_TRUE(std::isnan(v)) << loops->name;
    std::vector<uint16_t> half(17);
    loops->to_bf16(z.data(), half.data(), half.size());
    for (const uint16_t h : half) EXPECT_GT(h & 0x7FFF, 0x7F80) << loops->name;
  }
}

TEST(LayerLoopsTest, RoundsHalvesToEven) {
  const float values[] = {1.0f, 1.0f + 0x1p-8f, 1.0f + 0x3p-8f, -1.0f - 0x1p-8f,
                          std::numeric_limits<float>::infinity()};
  const uint16_t expected[] = {0x3F80, 0x3F80, 0x3F82, 0xBF80, 0x7F80};
  uint16_t half[5];
  BestLayerLoops().to_bf16(values, half, 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(half[i], expected[i]) << i;
}

}  // namespace
}  // namespace sluice
