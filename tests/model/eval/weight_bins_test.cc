#include "model/eval/weight_bins.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace sluice {
namespace {

using Plain = std::map<uint32_t, std::pair<uint64_t, uint64_t>>;

Plain Read(const WeightBins& bins) {
  Plain read;
  bins.ForEach([&](uint32_t bin, const WeightBins::Weights& weights) {
    EXPECT_TRUE(read.empty() || read.rbegin()->first < bin) << bin;
    read[bin] = {weights.positive, weights.negative};
  });
  return read;
}

TEST(WeightBinsTest, KeepsTheWeightsOfFewAndOfManyBins) {
  for (const size_t examples : {size_t{0}, size_t{1}, WeightBins::kFew / 2, 8 * WeightBins::kFew}) {
    std::mt19937_64 random(7);
    WeightBins bins;
    Plain plain;
    for (size_t i = 0; i < examples; ++i) {
      const uint32_t bin = random() % WeightBins::kBins;
      const uint64_t weight = 1 + random() % 1000;
      if (random() % 3 == 0) {
        bins.At(bin).positive += weight;
        plain[bin].first += weight;
      } else {
        bins.At(bin).negative += weight;
        plain[bin].second += weight;
      }
    }
    EXPECT_EQ(Read(bins), plain) << examples;
  }
}

TEST(WeightBinsTest, TheFirstAndTheLastBinAreUsable) {
  WeightBins bins;
  bins.At(WeightBins::kBins - 1).negative = 2;
  bins.At(0).positive = 1;
  EXPECT_EQ(Read(bins), (Plain{{0, {1, 0}}, {WeightBins::kBins - 1, {0, 2}}}));
}

TEST(WeightBinsTest, BinsWithoutWeightAreNotVisited) {
  WeightBins bins;
  bins.At(5);
  bins.At(6).positive = 1;
  EXPECT_EQ(Read(bins), (Plain{{6, {1, 0}}}));
}

}  // namespace
}  // namespace sluice
