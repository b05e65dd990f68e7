#include "common/collective/reduce_loops.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using Loop = void (*)(const ReduceLoops&, const float*, float*, size_t);

const std::vector<Loop> kLoops = {
    [](const ReduceLoops& l, const float*, float* a, size_t n) { l.multiply(0.3f, a, n); },
    [](const ReduceLoops& l, const float* v, float* a, size_t n) { l.scale(0.3f, v, a, n); },
    [](const ReduceLoops& l, const float* v, float* a, size_t n) { l.add_scaled(0.3f, v, a, n); },
    [](const ReduceLoops& l, const float* v, float* a, size_t n) { l.add(v, a, n); },
    [](const ReduceLoops& l, const float*, float* a, size_t n) { l.divide(0.3f, a, n); },
    [](const ReduceLoops& l, const float* v, float* a, size_t n) { l.min(v, a, n); },
    [](const ReduceLoops& l, const float* v, float* a, size_t n) { l.max(v, a, n); }};

// In plain float64, rounded after each operation as f32 arithmetic is.
float Reference(size_t loop, float v, float a) {
  const auto f32 = [](double x) { return static_cast<float>(x); };
  const double factor = 0.3f;
  switch (loop) {
    case 0:
      return f32(factor * a);
    case 1:
      return f32(factor * v);
    case 2:
      return f32(double{a} + double{f32(factor * v)});
    case 3:
      return f32(double{a} + double{v});
    case 4:
      return f32(a / factor);
    case 5:
      return std::isnan(a) || std::isnan(v) ? std::nanf("") : std::fmin(a, v);
    default:
      return std::isnan(a) || std::isnan(v) ? std::nanf("") : std::fmax(a, v);
  }
}

TEST(ReduceLoopsTest, EveryVersionGivesTheBitsOfTheReference) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> value(-4, 4);
  for (const InstructionSet set : SupportedInstructionSetsForTest()) {
    const ReduceLoops* const loops = &ReduceLoopsFor(set);
    for (const size_t n : {0, 1, 15, 16, 17, 33, 1000}) {
      std::vector<float> v(n), a(n);
      for (float& x : v) x = value(random);
      for (float& x : a) x = value(random);
      if (n > 20) {
        v[2] = a[19] = std::numeric_limits<float>::quiet_NaN();
        v[3] = std::numeric_limits<float>::infinity();
      }
      for (size_t loop = 0; loop < kLoops.size(); ++loop) {
        std::vector<float> result = a;
        kLoops[loop](*loops, v.data(), result.data(), n);
        for (size_t i = 0; i < n; ++i) {
          const float expected = Reference(loop, v[i], a[i]);
          if (std::isnan(expected)) {
            EXPECT_TRUE(std::isnan(result[i])) << loops->name << loop << " at " << i;
          } else {
            EXPECT_EQ(result[i], expected) << loops->name << loop << " at " << i;
          }
        }
      }
    }
  }
}

// The nearest number with 8 significant bits, ties to even.
float NearestBf16(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const double scale = std::ldexp(1.0, 8 - exponent);
  return static_cast<float>(std::nearbyint(double{x} * scale) / scale);
}

TEST(ReduceLoopsTest, HalvesAreTheNearestAndAreWidenedExactly) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> value(-4, 4);
  for (const InstructionSet set : SupportedInstructionSetsForTest()) {
    const ReduceLoops* const loops = &ReduceLoopsFor(set);
    for (const size_t n : {0, 1, 15, 16, 17, 33, 1000}) {
      std::vector<float> v(n), widened(n), sums(n), scaled(n);
      for (float& x : v) x = value(random);
      for (float& x : sums) x = value(random);
      const std::vector<float> before = sums;
      if (n > 20) {
        v[0] = 1 + 0x1p-8f;             // a tie, to even: 1
        v[1] = 1 + 3 * 0x1p-8f;         // a tie, to even: 1 + 2^-6
        v[2] = 1 + 0x1p-8f + 0x1p-23f;  // above a tie
        v[19] = std::numeric_limits<float>::infinity();
        v[20] = std::numeric_limits<float>::quiet_NaN();
      }
      std::vector<uint16_t> halves(n);
      loops->round(v.data(), halves.data(), n);
      loops->widen(halves.data(), widened.data(), n);
      loops->scale_halves(0.3f, halves.data(), scaled.data(), n);
      loops->add_scaled_halves(0.3f, halves.data(), sums.data(), n);
      for (size_t i = 0; i < n; ++i) {
        const float expected = NearestBf16(v[i]);
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(widened[i]) && std::isnan(scaled[i]) && std::isnan(sums[i]));
          continue;
        }
        const float product = static_cast<float>(double{0.3f} * expected);
        EXPECT_EQ(widened[i], expected) << loops->name << " at " << i;
        EXPECT_EQ(scaled[i], product) << loops->name << " at " << i;
        EXPECT_EQ(sums[i], static_cast<float>(double{before[i]} + product));
      }
      if (n > 20) {
        EXPECT_EQ(widened[0], 1);
        EXPECT_EQ(widened[1], 1 + 0x1p-6f);
        EXPECT_EQ(widened[2], 1 + 0x1p-7f);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
