#include "model/data/click_generator.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>

#include "common/base/hash.h"
#include "common/base/normal_quantile.h"
#include "model/net/log_loss.h"

namespace sluice {
namespace {

constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
constexpr uint64_t kWeightStream = 1, kLineStream = 2, kBiasStream = 3;

struct NumberShape {
  double median, sigma;  // log-normal
  double missing;
};
// Shapes like those of the columns of the Criteo data: medians, spread, and how often a value is
// missing.
constexpr NumberShape kNumberShapes[ClickGenerator::kNumbers] = {
    {1.2, 1.3, .45}, {3, 2.0, 0},    {6, 1.5, .21},  {4, 1.2, .22},  {3000, 1.8, .03},
    {32, 1.6, .22},  {4, 1.5, .04},  {7, 1.2, .001}, {39, 1.4, .04}, {.6, .8, .45},
    {1.2, 1.1, .04}, {.4, 1.2, .77}, {4, 1.2, .22}};

struct CategoryShape {
  uint32_t cardinality;
  double missing;
};
constexpr CategoryShape kCategoryShapes[ClickGenerator::kCategories] = {
    {1460, 0},   {583, 0},     {10131227, .034}, {2202608, .034}, {305, 0},  {24, .12},
    {12517, 0},  {633, 0},     {3, 0},           {93145, 0},      {5683, 0}, {8351593, .034},
    {3194, 0},   {27, 0},      {14992, 0},       {5461306, .034}, {10, 0},   {5652, 0},
    {2173, .44}, {4, .44},     {7046547, .034},  {18, .76},       {15, 0},   {286181, .034},
    {105, .44},  {142572, .44}};

uint32_t InTwo32(double probability) {
  return static_cast<uint32_t>(std::min(std::llround(probability * 0x1p32), 0xFFFFFFFFll));
}

double Unit(uint64_t h) { return static_cast<double>(h >> 11) * 0x1p-53; }

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The 8 hexadecimal digits of `value`, with the most significant first in memory.
uint64_t HexDigits(uint32_t value) {
  uint64_t x = __builtin_bswap32(value);
  x = (x | x << 16) & 0x0000FFFF0000FFFFu;
  x = (x | x << 8) & 0x00FF00FF00FF00FFu;
  x = ((x & 0x000F000F000F000Fu) << 8) | ((x >> 4) & 0x000F000F000F000Fu);
  const uint64_t letters = ((x + 0x0606060606060606u) >> 4) & 0x0101010101010101u;
  return x + 0x3030303030303030u + letters * ('a' - '0' - 10);
}

// A bijection of 32-bit words, so that the values of a category stay distinct.
uint32_t Scramble(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

// The effect of a category's value on the logit, uniform in +-0.5.
double EffectOf(uint64_t seed, uint32_t value) {
  return static_cast<double>(CombineHash(seed, value) >> 40) * 0x1p-24 - 0.5;
}

// Sum of 1 / r^zipf over the ranks [begin, end), counted from 1. An integral replaces long sums.
double ZipfWeight(double zipf, double begin, double end) {
  if (end - begin <= 16) {
    double sum = 0;
    for (double r = begin; r < end; ++r) sum += std::pow(r, -zipf);
    return sum;
  }
  // The midpoint rule in reverse: each rank r stands for the interval [r - 1/2, r + 1/2).
  const double a = begin - 0.5, b = end - 0.5;
  if (std::abs(zipf - 1) < 1e-9) return std::log(b / a);
  return (std::pow(b, 1 - zipf) - std::pow(a, 1 - zipf)) / (1 - zipf);
}

}  // namespace

void ClickSums::Add(double logit, bool positive) {
  ++examples_;
  positive_ += positive;
  // The loss in billionths as a whole number: sums of threads are then the same in any order.
  const double away = positive ? -logit : logit;
  const double loss = LogLossOf(away, /*label=*/0);
  nano_loss_ += static_cast<uint64_t>(loss * 1e9 + 0.5);
  const double at = (std::clamp(logit, -15.99, 15.99) + 16) * (kBins / 32.0);
  ++(positive ? positives_ : negatives_)[static_cast<size_t>(at)];
}

void ClickSums::Merge(const ClickSums& other) {
  examples_ += other.examples_;
  positive_ += other.positive_;
  nano_loss_ += other.nano_loss_;
  for (size_t i = 0; i < kBins; ++i) {
    negatives_[i] += other.negatives_[i];
    positives_[i] += other.positives_[i];
  }
}

double ClickSums::positive_rate() const {
  return examples_ == 0 ? 0 : static_cast<double>(positive_) / static_cast<double>(examples_);
}

double ClickSums::log_loss() const {
  return examples_ == 0 ? 0
                        : static_cast<double>(nano_loss_) * 1e-9 / static_cast<double>(examples_);
}

double ClickSums::auc() const {
  const double negatives = static_cast<double>(examples_ - positive_);
  if (positive_ == 0 || negatives == 0) return 0.5;
  double below = 0, won = 0;
  for (size_t i = 0; i < kBins; ++i) {
    won += static_cast<double>(positives_[i]) * (below + static_cast<double>(negatives_[i]) / 2);
    below += static_cast<double>(negatives_[i]);
  }
  return won / (static_cast<double>(positive_) * negatives);
}

ClickGenerator::ClickGenerator(const ClickOptions& options) : options_(options) {
  MakeNumbers();
  MakeCategories();
  ChooseBias();
}

void ClickGenerator::MakeNumbers() {
  std::vector<double> quantiles(kQuantiles);
  for (size_t q = 0; q < kQuantiles; ++q) quantiles[q] = NormalQuantile((q + 0.5) / kQuantiles);
  for (size_t k = 0; k < kNumbers; ++k) {
    const NumberShape& shape = kNumberShapes[k];
    const uint64_t seed = CombineHash(CombineHash(options_.seed, kWeightStream), k);
    // Weights alternate in sign and have similar sizes, so that each number matters.
    const double weight = (k % 2 == 0 ? 1 : -1) * (0.1 + 0.2 * Unit(seed));
    Number number;
    number.missing = InTwo32(shape.missing);
    number.missing_effect = static_cast<float>(0.5 * Unit(MixHash(seed)) - 0.25);
    for (const double z : quantiles) {
      const double value =
          std::min(std::floor(shape.median * std::exp(shape.sigma * z)), 99999999.0);
      Count count{};
      const auto text =
          std::to_chars(count.text, count.text + kMostDigits, static_cast<int64_t>(value));
      count.size = static_cast<uint32_t>(text.ptr - count.text);
      count.effect = static_cast<float>(weight * std::log1p(value));
      number.counts.push_back(count);
    }
    numbers_.push_back(std::move(number));
  }
}

void ClickGenerator::MakeCategories() {
  for (size_t k = 0; k < kCategories; ++k) {
    Category category;
    uint32_t values = kCategoryShapes[k].cardinality;
    // A bound, and not a factor: small categories keep their sizes.
    if (options_.cardinality > 0)
      values = static_cast<uint32_t>(std::min<uint64_t>(values, options_.cardinality));
    category.missing = InTwo32(kCategoryShapes[k].missing);
    category.seed =
        static_cast<uint32_t>(CombineHash(CombineHash(options_.seed, kWeightStream), kNumbers + k));
    category.head = static_cast<uint32_t>(std::min<size_t>(values, kHead));
    std::vector<double> weights;
    for (uint32_t r = 0; r < category.head; ++r)
      weights.push_back(std::pow(r + 1.0, -options_.zipf));
    // Behind the head, ranges grow geometrically, so that the ranks of a range are about equally
    // likely.
    category.edges = {category.head};
    for (size_t i = 1; i <= kRanges && category.edges.back() < values; ++i) {
      const double edge = category.head * std::pow(static_cast<double>(values) / category.head,
                                                   i / double(kRanges));
      const uint32_t end =
          i == kRanges ? values : static_cast<uint32_t>(std::min<double>(edge, values));
      if (end == category.edges.back()) continue;
      weights.push_back(ZipfWeight(options_.zipf, category.edges.back() + 1.0, end + 1.0));
      category.edges.push_back(end);
    }
    // Vose's method: entries with more than their share fill up those with less.
    const double share = std::accumulate(weights.begin(), weights.end(), 0.0) / weights.size();
    std::vector<uint32_t> small, large;
    for (uint32_t t = 0; t < weights.size(); ++t) {
      weights[t] /= share;
      (weights[t] < 1 ? small : large).push_back(t);
    }
    category.table.resize(weights.size());
    while (!small.empty() && !large.empty()) {
      const uint32_t poor = small.back(), rich = large.back();
      small.pop_back();
      category.table[poor] = {InTwo32(weights[poor]), rich};
      weights[rich] -= 1 - weights[poor];
      if (weights[rich] >= 1) continue;
      large.pop_back();
      small.push_back(rich);
    }
    for (const auto* rest : {&small, &large}) {
      for (const uint32_t t : *rest) category.table[t] = {0xFFFFFFFF, t};
    }
    categories_.push_back(std::move(category));
  }
}

uint32_t ClickGenerator::RankOf(const Category& category, uint64_t draw, uint64_t second) {
  // The upper half of the draw chooses an entry of the table, and the lower half between the entry
  // and its other value.
  uint32_t t = static_cast<uint32_t>((draw >> 32) * category.table.size() >> 32);
  const AliasEntry entry = category.table[t];
  if (static_cast<uint32_t>(draw) >= entry.threshold) t = entry.other;
  if (t < category.head) return t;
  const uint32_t* const edge = &category.edges[t - category.head];
  return edge[0] + static_cast<uint32_t>((second >> 32) * (edge[1] - edge[0]) >> 32);
}

double ClickGenerator::WriteCells(uint64_t stream, char** to) const {
  char* at = *to;
  double logit = 0;
  for (const Number& number : numbers_) {
    const uint64_t draw = MixHash(stream += kStep);
    *at++ = '\t';
    if (static_cast<uint32_t>(draw) < number.missing) {
      logit += number.missing_effect;
      continue;
    }
    const Count& count = number.counts[draw >> 54];
    // Copies of a constant length are faster; the next cell overwrites what is too much.
    std::memcpy(at, count.text, kMostDigits);
    at += count.size;
    logit += count.effect;
  }
  for (const Category& category : categories_) {
    const uint64_t draw = MixHash(stream += kStep), second = MixHash(stream += kStep);
    // Rank 0xFFFFFFFF stands for a missing value.
    const bool missing = static_cast<uint32_t>(second) < category.missing;
    const uint32_t rank = missing ? 0xFFFFFFFFu : RankOf(category, draw, second);
    const uint32_t value = Scramble(rank + category.seed);
    const uint64_t digits = HexDigits(value);
    *at++ = '\t';
    std::memcpy(at, &digits, sizeof(digits));
    at += missing ? 0 : sizeof(digits);
    logit += EffectOf(category.seed, value);
  }
  *to = at;
  return logit;
}

void ClickGenerator::ChooseBias() {
  constexpr size_t kSample = 1 << 15;
  // A stream of its own, so that the bias does not depend on which lines are generated.
  const uint64_t seed = CombineHash(options_.seed, kBiasStream);
  std::vector<double> logits(kSample);
  char text[kMostBytes];
  for (size_t i = 0; i < kSample; ++i) {
    char* at = text;
    logits[i] = WriteCells(CombineHash(seed, i), &at);
  }
  double low = -40, high = 40;
  // Bisection: the rate of positives rises with the bias.
  for (int i = 0; i < 40; ++i) {
    bias_ = (low + high) / 2;
    double sum = 0;
    for (const double logit : logits) sum += Sigmoid(logit + bias_);
    (sum < options_.positive_rate * kSample ? low : high) = bias_;
  }
}

void ClickGenerator::Append(uint64_t first, size_t count, std::string* text,
                            ClickSums* sums) const {
  const size_t before = text->size();
  // Room for the longest lines, and cut at the end. Writing through a pointer is much faster than
  // appending cell by cell.
  text->resize(before + count * kMostBytes);
  char* at = &(*text)[before];
  const uint64_t seed = CombineHash(options_.seed, kLineStream);
  for (uint64_t i = first; i < first + count; ++i) {
    const uint64_t stream = CombineHash(seed, i);
    char* const label = at++;
    const double logit = WriteCells(stream, &at) + bias_;
    const bool positive = Unit(MixHash(stream)) < Sigmoid(logit);
    *label = positive ? '1' : '0';
    *at++ = '\n';
    sums->Add(logit, positive);
  }
  text->resize(at - text->data());
}

}  // namespace sluice
