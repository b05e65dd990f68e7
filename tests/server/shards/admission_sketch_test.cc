#include "server/shards/admission_sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace sluice {
namespace {

AdmitConfig AfterUpdates(uint32_t n) {
  AdmitConfig config;
  config.set_after(n);
  return config;
}

// A few keys come often, most come rarely.
std::vector<uint64_t> SkewedKeys(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  std::vector<uint64_t> keys;
  for (size_t i = 0; i < n; ++i)
    keys.push_back(static_cast<uint64_t>(20'000 * std::pow(unit(random), 3)) * 0x9E3779B97F4A7C15u);
  return keys;
}

TEST(AdmissionSketchTest, CountsAreNeverTooLowAndRarelyAboveTheBound) {
  AdmissionSketch sketch(64 << 10);
  ASSERT_EQ(sketch.width(), 8192u);
  std::map<uint64_t, uint32_t> counts;
  const std::vector<uint64_t> keys = SkewedKeys(100'000, 1);
  for (const uint64_t key : keys) {
    sketch.Add(key);
    ++counts[key];
  }
  const double bound = std::exp(1.0) / static_cast<double>(sketch.width()) * keys.size();
  size_t above = 0;
  for (const auto& [key, count] : counts) {
    ASSERT_GE(sketch.Count(key), count);
    above += sketch.Count(key) - count > bound;
  }
  EXPECT_LE(static_cast<double>(above), std::exp(-4.0) * static_cast<double>(counts.size()));
  EXPECT_LT(bound, 34);
}

TEST(AdmissionSketchTest, TheOrderOfTheKeysDoesNotMatter) {
  std::vector<uint64_t> keys = SkewedKeys(20'000, 2);
  AdmissionSketch one(4096), other(4096);
  for (const uint64_t key : keys) one.Add(key);
  std::reverse(keys.begin(), keys.end());
  for (const uint64_t key : keys) other.Add(key);
  EXPECT_EQ(one.Image(), other.Image());
}

// New keys, as a table meets them for years.
TEST(AdmissionSketchTest, AfterManyTimesItsBoundNewKeysStillCountAsNew) {
  AdmissionRule rule(AfterUpdates(3), 64 << 10, 1);
  AdmissionSketch* const sketch = rule.sketch();
  const uint64_t bound = sketch->most_updates();
  EXPECT_EQ(bound, 3013u);
  uint64_t key = 0;
  while (key < 100 * bound) {
    for (int i = 0; i < 50; ++i) sketch->Add(key++);
    sketch->Age();
    ASSERT_LT(sketch->updates(), bound);
  }
  EXPECT_GT(sketch->halvings(), 150u);
  constexpr uint64_t kNew = 10'000;
  uint64_t counted = 0;
  for (uint64_t i = 0; i < kNew; ++i) counted += sketch->Count(key + i) > 0;
  EXPECT_LE(static_cast<double>(counted), std::exp(-4.0) * kNew);
  // One that comes often enough gets its row, and the others of these days do not.
  const uint64_t often = key++;
  for (const bool admits : {false, false, true}) {
    sketch->Add(often);
    EXPECT_EQ(rule.Admits(often), admits);
    for (int i = 0; i < 50; ++i, ++key) {
      sketch->Add(key);
      EXPECT_FALSE(rule.Admits(key));
    }
    sketch->Age();
  }
}

TEST(AdmissionSketchTest, AnImageContinuesAcrossHalvings) {
  AdmissionSketch sketch(4096);
  const auto add = [](uint64_t seed, AdmissionSketch* to) {
    for (const uint64_t key : SkewedKeys(100, seed)) to->Add(key);
    to->Age();
  };
  for (uint64_t update = 0; update < 20; ++update) {
    AdmissionSketch restored(4096);
    ASSERT_TRUE(restored.Restore(sketch.Image()));
    add(update, &sketch);
    add(update, &restored);
    ASSERT_EQ(restored.Image(), sketch.Image()) << update;
  }
  EXPECT_GT(sketch.halvings(), 10u);
}

TEST(AdmissionSketchTest, AnImageWithoutACountOfUpdatesIsRead) {
  AdmissionSketch sketch(4096), restored(4096);
  const std::vector<uint64_t> keys = SkewedKeys(1000, 3);
  for (const uint64_t key : keys) sketch.Add(key);
  ASSERT_TRUE(restored.Restore(sketch.Image().substr(0, 4096)));
  EXPECT_EQ(restored.updates(), keys.size());
  EXPECT_EQ(restored.Image(), sketch.Image());
  restored.Age();
  EXPECT_LT(restored.updates(), restored.most_updates());
}

TEST(AdmissionSketchTest, CountersStopAtTheirLargestValue) {
  AdmissionSketch sketch(8);
  for (uint32_t i = 0; i < AdmissionSketch::kMost + 10; ++i) sketch.Add(7);
  EXPECT_EQ(sketch.Count(7), AdmissionSketch::kMost);
}

TEST(AdmissionSketchTest, AnImageContinuesWhereTheSketchWas) {
  AdmissionSketch sketch(4096), restored(4096), small(2048);
  EXPECT_EQ(sketch.Image(), "");
  for (const uint64_t key : SkewedKeys(1000, 3)) sketch.Add(key);
  ASSERT_TRUE(restored.Restore(sketch.Image()));
  EXPECT_EQ(restored.Image(), sketch.Image());
  EXPECT_FALSE(small.Restore(sketch.Image()));
  EXPECT_EQ(small.Image(), "");
  EXPECT_TRUE(restored.Restore(""));
  EXPECT_EQ(restored.Image(), "");
}

TEST(AdmissionRuleTest, AfterAdmitsWithTheNthUpdate) {
  AdmissionRule rule(AfterUpdates(3), 4096, 1);
  for (const bool admits : {false, false, true, true}) {
    rule.sketch()->Add(5);
    EXPECT_EQ(rule.Admits(5), admits);
  }
  EXPECT_FALSE(rule.Admits(6));
}

TEST(AdmissionRuleTest, ProbabilityDrawsByKeyCountAndStream) {
  AdmitConfig config;
  config.set_probability(0.25);
  AdmissionRule rule(config, 1 << 20, 1), same(config, 1 << 20, 1), other(config, 1 << 20, 2);
  int admitted = 0, differ = 0;
  constexpr int kKeys = 2000;
  for (uint64_t key = 0; key < kKeys; ++key) {
    rule.sketch()->Add(key);
    same.sketch()->Add(key);
    other.sketch()->Add(key);
    admitted += rule.Admits(key);
    EXPECT_EQ(rule.Admits(key), same.Admits(key));
    differ += rule.Admits(key) != other.Admits(key);
  }
  EXPECT_NEAR(admitted, kKeys / 4, 100);
  EXPECT_GT(differ, kKeys / 5);
  // A key that was refused may be admitted with its next update.
  int later = 0;
  for (uint64_t key = 0; key < kKeys; ++key) {
    if (rule.Admits(key)) continue;
    rule.sketch()->Add(key);
    later += rule.Admits(key);
  }
  EXPECT_NEAR(later, kKeys * 3 / 16, 100);
}

// A key that comes seldom has the same count each time.
TEST(AdmissionRuleTest, ACountThatWasHalvedDrawsAnew) {
  AdmitConfig config;
  config.set_probability(0.25);
  AdmissionRule rule(config, 8, 1);  // every update halves
  int admitted = 0;
  for (int i = 0; i < 400; ++i) {
    rule.sketch()->Add(7);
    ASSERT_EQ(rule.sketch()->Count(7), 1u);
    admitted += rule.Admits(7);
    rule.sketch()->Age();
  }
  EXPECT_NEAR(admitted, 100, 30);
}

TEST(AdmissionRuleTest, AKeyWhoseCounterIsFullIsAdmitted) {
  AdmitConfig config;
  config.set_probability(1e-12);
  AdmissionRule rule(config, 8, 1);
  for (uint32_t i = 0; i + 1 < AdmissionSketch::kMost; ++i) rule.sketch()->Add(7);
  EXPECT_FALSE(rule.Admits(7));
  rule.sketch()->Add(7);
  EXPECT_TRUE(rule.Admits(7));
}

}  // namespace
}  // namespace sluice
