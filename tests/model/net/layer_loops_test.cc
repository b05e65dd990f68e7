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

// Rows of the loops over rows: some that are taken together, and the rest.
constexpr size_t kRows = 6;

struct Results {
  std::vector<float> relu, mask, outer, rounded, taken;
  std::vector<double> sums, cleared, first_sums, mask_sums, outer_sums, weight_sums;
  std::vector<std::vector<float>> added;  // without and with `from`, without and with `b`
  std::vector<uint16_t> half;
  float dot = 0;
};

class LayerLoopsTest : public ::testing::TestWithParam<size_t> {
 protected:
  LayerLoopsTest() : n_(GetParam()) {
    std::mt19937_64 random(n_);
    for (size_t i = 0; i < kRows * n_; ++i) {
      a_.push_back(Value(random()));
      b_.push_back(Value(random()));
    }
    for (size_t row = 0; row < kRows; ++row) g_.push_back(Value(random()));
  }
  static float Value(uint64_t bits) {
    return static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-52 - 1.0);
  }

  Results Compute(const LayerLoops& loops) const {
    Results r;
    r.relu = r.mask = a_;
    r.outer.resize(kRows * n_);
    r.rounded.resize(n_);
    r.half.resize(n_);
    r.sums = r.mask_sums = r.outer_sums = r.weight_sums = std::vector<double>(n_, 0.25);
    loops.bias_relu(b_.data(), r.relu.data(), n_);
    loops.mask(b_.data(), 1.25f, r.mask.data(), kRows, n_, r.mask_sums.data());
    loops.outer(a_.data(), b_.data(), g_.data(), 1.25f, r.outer.data(), kRows, n_,
                r.weight_sums.data(), r.outer_sums.data());
    r.dot = loops.dot(a_.data(), b_.data(), n_);
    loops.add(false, b_.data(), nullptr, r.sums.data(), n_);
    r.first_sums.resize(n_);
    loops.add(true, a_.data(), nullptr, r.first_sums.data(), n_);
    loops.add(false, b_.data(), a_.data(), r.first_sums.data(), n_);
    loops.round(r.sums.data(), 1.0 / 3, r.rounded.data(), n_);
    r.taken.resize(n_);
    r.cleared = r.sums;
    loops.round_and_clear(r.cleared.data(), 1.0 / 3, r.taken.data(), n_);
    r.added.resize(4, std::vector<float>(n_));
    for (int i = 0; i < 4; ++i) {
      loops.add_and_round(i < 2 ? nullptr : r.sums.data(), a_.data(),
                          i % 2 == 0 ? nullptr : b_.data(), 1.0 / 3, r.added[i].data(), n_);
    }
    loops.to_bf16(a_.data(), r.half.data(), n_);
    return r;
  }

  const size_t n_;
  std::vector<float> a_, b_;  // [kRows][n_]
  std::vector<float> g_;      // [kRows]
};

TEST_P(LayerLoopsTest, BestGivesTheSameBitsAsPortable) {
  const Results portable = Compute(internal::kPortableLayerLoops), best = Compute(BestLayerLoops());
  EXPECT_EQ(portable.relu, best.relu);
  EXPECT_EQ(portable.mask, best.mask);
  EXPECT_EQ(portable.mask_sums, best.mask_sums);
  EXPECT_EQ(portable.outer, best.outer);
  EXPECT_EQ(portable.outer_sums, best.outer_sums);
  EXPECT_EQ(portable.weight_sums, best.weight_sums);
  EXPECT_EQ(portable.rounded, best.rounded);
  EXPECT_EQ(portable.taken, best.taken);
  EXPECT_EQ(portable.cleared, best.cleared);
  EXPECT_EQ(portable.sums, best.sums);
  EXPECT_EQ(portable.first_sums, best.first_sums);
  EXPECT_EQ(portable.added, best.added);
  EXPECT_EQ(portable.half, best.half);
  EXPECT_EQ(std::memcmp(&portable.dot, &best.dot, sizeof(float)), 0);
}

TEST_P(LayerLoopsTest, PortableComputesTheFormulasOfTheHeader) {
  const Results r = Compute(internal::kPortableLayerLoops);
  double dot = 0;
  for (size_t i = 0; i < n_; ++i) {
    EXPECT_EQ(r.relu[i], std::max(a_[i] + b_[i], 0.0f));
    EXPECT_EQ(r.sums[i], 0.25 + b_[i]);
    EXPECT_EQ(r.first_sums[i], (double{a_[i]} + b_[i]) + a_[i]);
    const double third = 1.0 / 3, with = r.sums[i] + a_[i];
    EXPECT_EQ(r.added[0][i], static_cast<float>(a_[i] * third));
    EXPECT_EQ(r.added[1][i], static_cast<float>((double{a_[i]} + b_[i]) * third));
    EXPECT_EQ(r.added[2][i], static_cast<float>(with * third));
    EXPECT_EQ(r.added[3][i], static_cast<float>((with + b_[i]) * third));
    EXPECT_EQ(r.rounded[i], static_cast<float>(r.sums[i] * (1.0 / 3)));
    EXPECT_EQ(r.taken[i], r.rounded[i]);
    EXPECT_EQ(r.cleared[i], 0);
    uint32_t bits = static_cast<uint32_t>(r.half[i]) << 16;
    float half;
    std::memcpy(&half, &bits, sizeof half);
    EXPECT_LE(std::abs(half - a_[i]), std::abs(a_[i]) / 256);
    dot += static_cast<double>(a_[i]) * b_[i];
  }
  EXPECT_LE(std::abs(r.dot - dot), 1e-5);
}

TEST_P(LayerLoopsTest, LoopsOverRowsAddThemInTheirOrder) {
  const Results r = Compute(internal::kPortableLayerLoops);
  for (size_t j = 0; j < n_; ++j) {
    double mask_sum = 0.25, outer_sum = 0.25, weight_sum = 0.25;
    for (size_t row = 0; row < kRows; ++row) {
      const size_t i = row * n_ + j;
      const float mask = b_[i] > 0 ? a_[i] * 1.25f : 0.0f;
      const float outer = a_[i] > 0 ? b_[j] * g_[row] * 1.25f : 0.0f;
      EXPECT_EQ(r.mask[i], mask);
      EXPECT_EQ(r.outer[i], outer);
      mask_sum += mask;
      outer_sum += outer;
      weight_sum += static_cast<double>(a_[i]) * g_[row];
    }
    EXPECT_EQ(r.mask_sums[j], mask_sum);
    EXPECT_EQ(r.outer_sums[j], outer_sum);
    EXPECT_EQ(r.weight_sums[j], weight_sum);
  }
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
