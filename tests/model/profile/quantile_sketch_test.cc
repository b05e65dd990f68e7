#include "model/profile/quantile_sketch.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace sluice {
namespace {

using ::testing::ElementsAre;

TEST(QuantileSketchTest, FewNumbersAreExact) {
  QuantileSketch sketch;
  for (const double value : {5, 1, 4, 2, 3}) sketch.Add(value);
  EXPECT_TRUE(sketch.exact());
  EXPECT_EQ(sketch.count(), 5u);
  EXPECT_THAT(sketch.Quantiles({0, 0.1, 0.5, 0.9, 1}), ElementsAre(1, 1, 3, 5, 5));
}

// The share of the sorted numbers that are below `value`, or, for one that occurs often, the
// nearest to `wanted` of the shares that it covers.
double ShareAt(const std::vector<double>& sorted, double value, double wanted) {
  const auto n = static_cast<double>(sorted.size());
  const auto range = std::equal_range(sorted.begin(), sorted.end(), value);
  return std::clamp(wanted, static_cast<double>(range.first - sorted.begin()) / n,
                    static_cast<double>(range.second - sorted.begin()) / n);
}

TEST(QuantileSketchTest, ManyNumbersAreWithinTheStatedErrorOfTheirRank) {
  std::mt19937_64 random(5);
  const auto normal = [&] { return std::normal_distribution<double>(0, 100)(random); };
  uint64_t next = 0;
  const std::vector<std::pair<const char*, std::function<double()>>> sources = {
      {"normal", normal},
      {"ascending", [&] { return static_cast<double>(next++); }},
      {"descending", [&] { return -static_cast<double>(next++); }},
      {"mostly zero", [&] { return random() % 10 == 0 ? std::exp(normal() / 50) : 0; }},
      {"few values", [&] { return static_cast<double>(random() % 5); }}};
  for (const auto& [name, source] : sources) {
    QuantileSketch sketch;
    std::vector<double> all;
    for (int i = 0; i < 300000; ++i) {
      all.push_back(source());
      sketch.Add(all.back());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(sketch.count(), all.size());
    std::vector<double> shares;
    for (int i = 0; i <= 100; ++i) shares.push_back(i / 100.0);
    const std::vector<double> found = sketch.Quantiles(shares);
    EXPECT_EQ(found.front(), all.front()) << name;
    EXPECT_EQ(found.back(), all.back()) << name;
    for (size_t i = 0; i < shares.size(); ++i) {
      EXPECT_LE(std::abs(ShareAt(all, found[i], shares[i]) - shares[i]), QuantileSketch::kError)
          << name << " " << shares[i];
    }
  }
}

}  // namespace
}  // namespace sluice
