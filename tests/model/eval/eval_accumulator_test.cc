#include "model/eval/eval_accumulator.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/net/dense_net.h"
#include "model/net/log_loss.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

struct Example {
  float logit, label, weight;
};

// Weights are multiples of 1/4: exact in fixed point.
std::vector<Example> RandomExamples(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Example> examples;
  for (size_t i = 0; i < n; ++i) {
    const float label = random() % 3 == 0;
    // Includes ties and the boundary between the classes.
    const float tied = random() % 2 == 0 ? 0.5f : 0.0f;
    const float logit = random() % 10 == 0 ? tied : 2 * normal(random) + label;
    examples.push_back({logit, label, static_cast<float>(random() % 8) / 4});
  }
  return examples;
}

EvalAccumulator Accumulate(const std::vector<Example>& examples) {
  EvalAccumulator accumulator;
  for (const Example& e : examples) accumulator.Add(e.logit, e.label, e.weight);
  return accumulator;
}

// Area under the curve by sorting on `score`, ties half, in double.
double ReferenceAuc(const std::vector<Example>& examples, double (*score)(const Example&)) {
  std::vector<Example> sorted = examples;
  std::sort(sorted.begin(), sorted.end(),
            [&](const Example& a, const Example& b) { return score(a) < score(b); });
  double negatives = 0, positives = 0, area = 0;
  for (size_t i = 0; i < sorted.size();) {
    double p = 0, n = 0;
    size_t j = i;
    for (; j < sorted.size() && score(sorted[j]) == score(sorted[i]); ++j) {
      (sorted[j].label > 0 ? p : n) += sorted[j].weight;
    }
    area += p * (negatives + n / 2);
    positives += p, negatives += n;
    i = j;
  }
  return area / (positives * negatives);
}

double Binned(const Example& e) {
  return std::min(std::floor(Sigmoid(e.logit) * 0x1p20), 0x1p20 - 1);
}
double Exact(const Example& e) { return e.logit; }

TEST(EvalAccumulatorTest, AucAgreesWithSorting) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    const std::vector<Example> examples = RandomExamples(20000, seed);
    const EvalMetrics metrics = Accumulate(examples).Metrics();
    EXPECT_NEAR(metrics.auc(), ReferenceAuc(examples, Binned), 1e-12);
    EXPECT_LE(std::abs(metrics.auc() - ReferenceAuc(examples, Exact)),
              metrics.auc_error_bound() + 1e-12);
    EXPECT_GT(metrics.auc(), 0.55);
  }
}

TEST(EvalAccumulatorTest, OtherMetricsAgreeWithTheirFormulas) {
  const std::vector<Example> examples = RandomExamples(5000, 4);
  double weight = 0, loss = 0, correct = 0, absolute = 0, squared = 0, probability = 0, label = 0;
  for (const Example& e : examples) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(e.logit)));
    weight += e.weight;
    loss -= e.weight * (e.label > 0 ? std::log(p) : std::log1p(-p));
    correct += (p >= 0.5) == (e.label > 0) ? e.weight : 0;
    absolute += e.weight * std::abs(p - e.label);
    squared += e.weight * (p - e.label) * (p - e.label);
    probability += e.weight * p;
    label += e.weight * e.label;
  }
  const EvalMetrics metrics = Accumulate(examples).Metrics();
  EXPECT_NEAR(metrics.log_loss(), loss / weight, 1e-7);
  EXPECT_NEAR(metrics.accuracy(), correct / weight, 1e-12);
  EXPECT_NEAR(metrics.mae(), absolute / weight, 1e-7);
  EXPECT_NEAR(metrics.rmse(), std::sqrt(squared / weight), 1e-7);
  EXPECT_NEAR(metrics.calibration(), probability / label, 1e-7);
  EXPECT_EQ(metrics.examples(), 5000u);
}

TEST(EvalAccumulatorTest, AnySplitGivesTheSameBits) {
  const std::vector<Example> examples = RandomExamples(3000, 5);
  const std::string expected = Accumulate(examples).Metrics().SerializeAsString();
  std::mt19937 random(6);
  for (int parts : {1, 2, 4, 7}) {
    std::vector<std::vector<Example>> split(parts);
    for (const Example& e : examples) split[random() % parts].push_back(e);
    EvalAccumulator merged;
    std::shuffle(split.begin(), split.end(), random);
    for (const auto& part : split) {
      EvalSums sums;  // over the wire
      ASSERT_TRUE(sums.ParseFromString(Accumulate(part).ToProto().SerializeAsString()));
      ASSERT_TRUE(merged.Merge(sums).ok());
    }
    EXPECT_EQ(merged.Metrics().SerializeAsString(), expected) << parts;
  }
}

// The metrics of examples with these weights, all multiplied by `scale`.
EvalMetrics Scaled(std::vector<Example> examples, float scale) {
  for (Example& e : examples) e.weight *= scale;
  return Accumulate(examples).Metrics();
}

// In units of 2^-20 and 64 bits, the weights of a class would overflow, or be rounded to 0.
TEST(EvalAccumulatorTest, LargeAndSmallWeightsGiveTheMetricsOfThoseOfUsualSize) {
  const std::vector<Example> examples = RandomExamples(40000, 8);
  const EvalMetrics expected = Scaled(examples, 1);
  for (const float scale : {1e9f, 5e11f, 1e-7f, 1e-9f, 4e-12f, 0x1p-30f, 0x1p33f}) {
    const EvalMetrics metrics = Scaled(examples, scale);
    EXPECT_NEAR(metrics.auc(), expected.auc(), 2e-6) << scale;
    EXPECT_NEAR(metrics.log_loss(), expected.log_loss(), 2e-6) << scale;
    EXPECT_NEAR(metrics.accuracy(), expected.accuracy(), 2e-6) << scale;
    EXPECT_NEAR(metrics.rmse(), expected.rmse(), 2e-6) << scale;
    EXPECT_NEAR(metrics.calibration(), expected.calibration(), 2e-6) << scale;
    EXPECT_NEAR(metrics.positive_rate(), expected.positive_rate(), 2e-6) << scale;
    EXPECT_NEAR(metrics.auc_standard_error(), expected.auc_standard_error(), 2e-6) << scale;
  }
}

TEST(EvalAccumulatorTest, AnySplitGivesTheSameBitsWithWeightsOfAnySize) {
  std::vector<Example> examples = RandomExamples(3000, 9);
  std::mt19937 random(10);
  for (size_t i = 0; i < examples.size(); ++i) {
    const float scales[] = {1, 1e9f, 3e11f, 1.7e-8f};
    // Some parts have weights of usual size only.
    if (i % 3 == 0) examples[i].weight *= scales[random() % 4];
  }
  const std::string expected = Accumulate(examples).Metrics().SerializeAsString();
  for (const int parts : {2, 3, 7}) {
    std::vector<std::vector<Example>> split(parts);
    for (size_t i = 0; i < examples.size(); ++i) split[i % parts].push_back(examples[i]);
    std::shuffle(split.begin(), split.end(), random);
    EvalAccumulator merged;
    for (const auto& part : split) {
      EvalSums sums;
      ASSERT_TRUE(sums.ParseFromString(Accumulate(part).ToProto().SerializeAsString()));
      ASSERT_TRUE(merged.Merge(sums).ok());
    }
    EXPECT_EQ(merged.Metrics().SerializeAsString(), expected) << parts;
  }
}

TEST(EvalAccumulatorTest, PartsOfUsualWeightsMayAddUpToMoreThanTheirBinsHold) {
  // Each part has 2^41 of weight.
  const std::vector<Example> part(4, {1, 1, 0x1p39f});
  EvalAccumulator merged;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(merged.Merge(Accumulate(part).ToProto()).ok());
  ASSERT_TRUE(merged.Merge(Accumulate({{1, 0, 0x1p39f}, {-1, 0, 0x1p39f}}).ToProto()).ok());
  EXPECT_EQ(merged.Metrics().auc(), 0.75);
  EXPECT_NEAR(merged.Metrics().positive_rate(), 12.0 / 14, 1e-12);
}

// The sums of unweighted data in the units that messages had before weights of any size.
TEST(EvalAccumulatorTest, UnweightedSumsAreCoarse) {
  const EvalSums sums = Accumulate({{0, 1, 1}, {0, 0, 2}}).ToProto();
  EXPECT_FALSE(sums.fine());
  EXPECT_EQ(sums.positive_weight(0), 1u << 20);
  EXPECT_EQ(sums.weight().low(), 3u << 20);
  EXPECT_EQ(sums.probability().low(), uint64_t{3} << 51);
  EXPECT_TRUE(Accumulate({{0, 1, 1e-7f}}).ToProto().fine());
}

TEST(WideSumTest, CarriesThroughAllWords) {
  WideSum sum;
  const absl::uint128 most = absl::Uint128Max();
  sum.AddProduct(most, UINT64_MAX);
  sum.AddProduct(most, 1);
  EXPECT_EQ(sum.low, 0u);
  EXPECT_EQ(sum.high, UINT64_MAX);
  EXPECT_EQ(sum.highest, UINT64_MAX);
  EXPECT_EQ(sum.ToDouble(), 0x1p192);
}

TEST(EvalAccumulatorTest, TiesCountHalf) {
  EXPECT_EQ(Accumulate({{1, 1, 1}, {1, 0, 1}}).Metrics().auc(), 0.5);
  EXPECT_EQ(Accumulate({{1, 1, 1}, {1, 0, 1}}).Metrics().auc_error_bound(), 0.5);
  EXPECT_EQ(Accumulate({{1, 1, 1}, {1, 0, 1}, {-1, 0, 1}}).Metrics().auc(), 0.75);
  EXPECT_EQ(Accumulate({{1, 1, 1}, {-1, 0, 1}}).Metrics().auc(), 1.0);
  EXPECT_EQ(Accumulate({{-1, 1, 1}, {1, 0, 1}}).Metrics().auc(), 0.0);
}

TEST(EvalAccumulatorTest, WithoutExamplesNothingIsDefined) {
  for (const auto& examples : std::vector<std::vector<Example>>{{}, {{1, 1, 0}, {2, 0, -1}}}) {
    const EvalMetrics metrics = Accumulate(examples).Metrics();
    EXPECT_EQ(metrics.examples(), examples.size());
    EXPECT_FALSE(metrics.has_auc());
    EXPECT_FALSE(metrics.auc_undefined().empty());
    EXPECT_EQ(metrics.auc_standard_error(), 0);
    for (const double value :
         {metrics.accuracy(), metrics.log_loss(), metrics.mae(), metrics.rmse(),
          metrics.calibration(), metrics.positive_rate(), metrics.auc_error_bound()}) {
      EXPECT_TRUE(std::isnan(value)) << value;
    }
  }
}

TEST(EvalAccumulatorTest, OneClassHasNoAuc) {
  const EvalMetrics positive = Accumulate({{1, 1, 1}, {2, 1, 1}}).Metrics();
  EXPECT_FALSE(positive.has_auc());
  EXPECT_THAT(positive.auc_undefined(), HasSubstr("label 0"));
  EXPECT_EQ(positive.accuracy(), 1);
  EXPECT_EQ(positive.positive_rate(), 1);
  const EvalMetrics negative = Accumulate({{1, 0, 1}, {-2, 0, 1}}).Metrics();
  EXPECT_FALSE(negative.has_auc());
  EXPECT_THAT(negative.auc_undefined(), HasSubstr("label 1"));
  EXPECT_EQ(negative.accuracy(), 0.5);
  EXPECT_EQ(negative.positive_rate(), 0);
  EXPECT_TRUE(std::isnan(negative.calibration()));
  EXPECT_EQ(negative.auc_standard_error(), 0);
}

// Formula (1) of Hanley and McNeil 1982, from its three terms.
double ReferenceError(double a, double positives, double negatives) {
  const double q1 = a / (2 - a), q2 = 2 * a * a / (1 + a);
  return std::sqrt((a * (1 - a) + (positives - 1) * (q1 - a * a) + (negatives - 1) * (q2 - a * a)) /
                   positives / negatives);
}

TEST(EvalAccumulatorTest, StandardErrorIsThatOfHanleyAndMcNeil) {
  std::vector<Example> examples = RandomExamples(4000, 7);
  double positives = 0;
  for (Example& e : examples) {
    e.weight = 1;
    positives += e.label;
  }
  const EvalMetrics metrics = Accumulate(examples).Metrics();
  EXPECT_NEAR(metrics.auc_standard_error(),
              ReferenceError(metrics.auc(), positives, 4000 - positives), 1e-12);
  EXPECT_NEAR(metrics.positive_rate(), positives / 4000, 1e-12);
  // From their table: an area of 0.8 from 50 and 50 cases has a standard error of about 0.044.
  EXPECT_NEAR(ReferenceError(0.8, 50, 50), 0.0445, 0.0005);
  // Equal weights change nothing.
  for (Example& e : examples) e.weight = 4;
  EXPECT_NEAR(Accumulate(examples).Metrics().auc_standard_error(), metrics.auc_standard_error(),
              1e-12);
  EXPECT_EQ(Accumulate({{1, 1, 1}, {-1, 0, 1}}).Metrics().auc_standard_error(), 0);
}

TEST(EvalAccumulatorTest, CalibrationGroupsByProbability) {
  EvalAccumulator eval;
  EXPECT_TRUE(eval.Calibration().empty());
  // Probabilities 1/1001 ... 1000/1001; the label is 1 in the upper half, with weight 2.
  double weight = 0;
  for (int i = 1; i <= 1000; ++i) {
    const double p = i / 1001.0;
    const bool positive = i > 500;
    eval.Add(static_cast<float>(std::log(p / (1 - p))), positive, positive ? 2 : 1);
    weight += positive ? 2 : 1;
  }
  const std::vector<CalibrationBin> bins = eval.Calibration();
  ASSERT_EQ(bins.size(), EvalAccumulator::kCalibrationBins);
  double sum = 0, before = 0;
  for (const CalibrationBin& bin : bins) {
    sum += bin.weight();
    EXPECT_GT(bin.probability(), before);
    before = bin.probability();
    EXPECT_NEAR(bin.weight(), weight / 20, 2);
  }
  EXPECT_EQ(sum, weight);
  EXPECT_EQ(bins.front().positive_rate(), 0);
  EXPECT_EQ(bins.back().positive_rate(), 1);
  EXPECT_NEAR(bins.back().probability(), 0.981, 0.002);
  // The group with examples of both labels holds their shares.
  EXPECT_GT(bins[6].positive_rate(), 0);
  EXPECT_LT(bins[6].positive_rate(), 1);
}

TEST(EvalAccumulatorTest, CalibrationOfOneProbabilityIsOneGroup) {
  EvalAccumulator eval;
  for (int i = 0; i < 100; ++i) eval.Add(0, i < 30, 1);
  const std::vector<CalibrationBin> bins = eval.Calibration();
  ASSERT_EQ(bins.size(), 1u);
  EXPECT_NEAR(bins[0].probability(), 0.5, 1e-6);
  EXPECT_DOUBLE_EQ(bins[0].positive_rate(), 0.3);
  eval.Add(NAN, 1, 1);
  EXPECT_TRUE(eval.Calibration().empty());
}

TEST(EvalAccumulatorTest, CalibrationAfterAHeavyProbabilityHasNoTinyGroups) {
  EvalAccumulator eval;
  // Half of the weight has one probability, the lowest; the rest is spread over 1,000 of them.
  for (int i = 0; i < 1000; ++i) eval.Add(-8, 0, 1);
  for (int i = 0; i < 1000; ++i) eval.Add(static_cast<float>(-4 + i * 0.008), i % 2, 1);
  const std::vector<CalibrationBin> bins = eval.Calibration();
  ASSERT_EQ(bins.size(), 11u);
  EXPECT_EQ(bins[0].weight(), 1000);
  for (size_t i = 1; i < bins.size(); ++i) EXPECT_NEAR(bins[i].weight(), 100, 2) << i;
}

TEST(EvalAccumulatorTest, ExtremeLogitsStayFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const EvalMetrics m =
      Accumulate({{1e30f, 0, 1}, {inf, 0, 1e30f}, {-inf, 1, 1}, {inf, 1, 1}}).Metrics();
  EXPECT_TRUE(std::isfinite(m.log_loss()) && m.log_loss() > 1000) << m.log_loss();
  EXPECT_TRUE(std::isfinite(m.auc()) && m.auc() >= 0 && m.auc() <= 1) << m.auc();
}

TEST(EvalAccumulatorTest, NanLogitMakesEveryMetricNan) {
  EvalAccumulator a = Accumulate({{1, 1, 1}, {std::nanf(""), 0, 1}}), merged;
  ASSERT_TRUE(merged.Merge(a.ToProto()).ok());
  EXPECT_FALSE(merged.Metrics().has_auc());
  EXPECT_FALSE(merged.Metrics().auc_undefined().empty());
  EXPECT_TRUE(std::isnan(merged.Metrics().log_loss()));
  EXPECT_EQ(merged.Metrics().examples(), 2u);
}

TEST(EvalAccumulatorTest, CorruptSumsAreRefusedAndAddNothing) {
  EvalAccumulator a = Accumulate({{1, 1, 1}, {2, 0, 1}});
  const std::string before = a.ToProto().SerializeAsString();
  EvalSums bad = a.ToProto();
  bad.add_negative_bin_delta(3);  // a bin without a weight
  EXPECT_EQ(a.Merge(bad).code(), absl::StatusCode::kInvalidArgument);
  bad.add_negative_weight(5);
  bad.set_negative_bin_delta(1, 0xFFFFFFFF);  // beyond the last bin, also when 32 bits wrap
  EXPECT_EQ(a.Merge(bad).code(), absl::StatusCode::kInvalidArgument);
  bad.set_negative_bin_delta(1, 0);  // the same bin twice
  EXPECT_EQ(a.Merge(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = a.ToProto();
  bad.set_fine(true);  // without the upper words of its weights
  EXPECT_EQ(a.Merge(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = a.ToProto();
  bad.set_positive_bin_delta(0, 1 << 20);
  EXPECT_EQ(a.Merge(bad).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(a.ToProto().SerializeAsString(), before);
}

TEST(EvalAccumulatorTest, BadLinesTravelWithTheSums) {
  EvalAccumulator a, merged;
  a.AddBadLines(3);
  ASSERT_TRUE(merged.Merge(a.ToProto()).ok());
  ASSERT_TRUE(merged.Merge(a.ToProto()).ok());
  EXPECT_EQ(merged.ToProto().bad_lines(), 6u);
}

using PlainBins = std::map<uint32_t, std::pair<uint64_t, uint64_t>>;

PlainBins ReadBins(const WeightBins& bins) {
  PlainBins read;
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
    PlainBins plain;
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
    EXPECT_EQ(ReadBins(bins), plain) << examples;
  }
}

TEST(WeightBinsTest, TheFirstAndTheLastBinAreUsable) {
  WeightBins bins;
  bins.At(WeightBins::kBins - 1).negative = 2;
  bins.At(0).positive = 1;
  EXPECT_EQ(ReadBins(bins), (PlainBins{{0, {1, 0}}, {WeightBins::kBins - 1, {0, 2}}}));
}

TEST(WeightBinsTest, BinsWithoutWeightAreNotVisited) {
  WeightBins bins;
  bins.At(5);
  bins.At(6).positive = 1;
  EXPECT_EQ(ReadBins(bins), (PlainBins{{6, {1, 0}}}));
}

}  // namespace
}  // namespace sluice
