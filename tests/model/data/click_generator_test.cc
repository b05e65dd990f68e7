#include "model/data/click_generator.h"

#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

std::string Lines(const ClickOptions& options, uint64_t first, size_t count,
                  ClickSums* sums = nullptr) {
  ClickSums own;
  std::string text;
  ClickGenerator(options).Append(first, count, &text, sums != nullptr ? sums : &own);
  return text;
}

std::vector<std::vector<std::string>> Cells(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
    rows.push_back(absl::StrSplit(line, '\t'));
  return rows;
}

TEST(ClickGeneratorTest, LinesHaveTheFormatOfCriteo) {
  const auto rows = Cells(Lines({}, 0, 500));
  ASSERT_EQ(rows.size(), 500);
  size_t missing = 0;
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 40);
    EXPECT_TRUE(row[0] == "0" || row[0] == "1");
    for (size_t i = 1; i < 40; ++i) {
      missing += row[i].empty();
      const char* const digits = i < 14 ? "0123456789" : "0123456789abcdef";
      EXPECT_EQ(row[i].find_first_not_of(digits), std::string::npos) << row[i];
      if (i >= 14 && !row[i].empty()) {
        EXPECT_EQ(row[i].size(), 8);
      }
    }
    EXPECT_FALSE(row[2].empty());
    EXPECT_FALSE(row[14].empty());
  }
  EXPECT_GT(missing, 500 * 2);
  EXPECT_LT(missing, 500 * 10);
}

TEST(ClickGeneratorTest, LineDependsOnlyOnOptionsAndItsNumber) {
  const std::string whole = Lines({}, 0, 300);
  EXPECT_EQ(Lines({}, 0, 100) + Lines({}, 100, 1) + Lines({}, 101, 199), whole);
  ClickOptions other;
  other.seed = 2;
  EXPECT_NE(Lines(other, 0, 300), whole);
}

TEST(ClickGeneratorTest, RanksFollowTheZipfLaw) {
  ClickOptions options;
  options.zipf = 1.3;
  std::map<std::string, int> seen;
  const int n = 40000;
  for (const auto& row : Cells(Lines(options, 0, n)))
    ++seen[row[14]];  // C1: 1460 values, none missing
  std::multiset<int, std::greater<>> counts;
  for (const auto& [value, count] : seen) counts.insert(count);
  double sum = 0;
  for (int r = 1; r <= 1460; ++r) sum += std::pow(r, -1.3);
  auto at = counts.begin();
  for (int r = 1; r <= 5; ++r, ++at) {
    const double expected = n * std::pow(r, -1.3) / sum;
    EXPECT_NEAR(*at, expected, 5 * std::sqrt(expected)) << "rank " << r;
  }
}

TEST(ClickGeneratorTest, LongTailsHaveTheirShare) {
  std::map<std::string, int> seen;
  int present = 0;
  for (const auto& row : Cells(Lines({}, 0, 20000))) {
    if (row[16].empty()) continue;  // C3: 10 million values
    ++present;
    ++seen[row[16]];
  }
  // With 1 / r^1.05 over 10,131,227 ranks, the first rank has a share of 0.0893, and half of the
  // values are beyond about rank 600.
  int most = 0;
  for (const auto& [value, count] : seen) most = std::max(most, count);
  EXPECT_NEAR(most, 0.0893 * present, 250);
  EXPECT_GT(seen.size(), present / 3);
}

TEST(ClickGeneratorTest, CardinalityBoundsTheValues) {
  ClickOptions options;
  options.cardinality = 20;
  std::set<std::string> seen[40];
  for (const auto& row : Cells(Lines(options, 0, 5000))) {
    for (size_t i = 14; i < 40; ++i) {
      if (!row[i].empty()) seen[i].insert(row[i]);
    }
  }
  EXPECT_EQ(seen[16].size(), 20);  // C3
  EXPECT_EQ(seen[22].size(), 3);   // C9 has no more
}

TEST(ClickGeneratorTest, LabelsFollowTheTrueProbabilities) {
  for (const double rate : {0.25, 0.5}) {
    ClickOptions options;
    options.positive_rate = rate;
    ClickSums sums;
    Lines(options, 0, 20000, &sums);
    EXPECT_EQ(sums.examples(), 20000);
    EXPECT_NEAR(sums.positive_rate(), rate, 0.015);
    EXPECT_GT(sums.auc(), 0.78);
    EXPECT_LT(sums.auc(), 0.9);
    EXPECT_LT(sums.log_loss(), -rate * std::log(rate) - (1 - rate) * std::log(1 - rate) - 0.1);
  }
}

TEST(ClickSumsTest, AucMatchesACountOfAllPairs) {
  const double logits[] = {-20, -1, 0, 0, 0.5, 2, 2, 17};
  const bool labels[] = {false, true, false, true, false, false, true, true};
  ClickSums one, two;
  double won = 0, pairs = 0, loss = 0;
  for (int i = 0; i < 8; ++i) {
    (i % 2 ? one : two).Add(logits[i], labels[i]);
    loss += std::log1p(std::exp(labels[i] ? -logits[i] : logits[i])) / 8;
    for (int j = 0; j < 8; ++j) {
      if (!labels[i] || labels[j]) continue;
      pairs += 1;
      won += logits[i] > logits[j] ? 1 : logits[i] == logits[j] ? 0.5 : 0;
    }
  }
  one.Merge(two);
  EXPECT_DOUBLE_EQ(one.auc(), won / pairs);
  EXPECT_NEAR(one.log_loss(), loss, 1e-8);
  EXPECT_DOUBLE_EQ(one.positive_rate(), 0.5);
  EXPECT_DOUBLE_EQ(ClickSums().auc(), 0.5);
}

}  // namespace
}  // namespace sluice
