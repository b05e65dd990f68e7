// Generates any number of seeded lines of Criteo-like click data with a known attainable AUC.
//
// The cardinalities and shares of missing values are taken from Criteo's public data set. The model
// is logit = bias + sum of w_k * log(1 + count k) + one hidden weight for each category value, and
// label ~ Bernoulli(sigmoid(logit)).
//
// Format: label, 13 counts, 26 categories of 8 hexadecimal digits, separated by tabs. An empty cell
// is a missing value.
//
// Invariants: line i depends only on the options and i, so the lines are the same however they are
// split over pieces, files and threads.
//
// Source: values follow a Zipf distribution and are drawn by the alias method (Walker 1977; Vose
// 1991). Beyond the first kHead, ranks are grouped in ranges whose ranks are equally likely.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct ClickOptions {
  uint64_t seed = 1;
  double zipf = 1.05;        // exponent: frequency of rank r is 1 / r^zipf
  uint64_t cardinality = 0;  // most values of a category; 0: as in Criteo's data, up to 10,131,227
  double positive_rate = 0.25;  // expected share of positive labels
};

// Measures how well the true probabilities predict the drawn labels. Sums are integers, so they do
// not depend on their order.
class ClickSums {
 public:
  ClickSums() : negatives_(kBins), positives_(kBins) {}
  void Add(double logit, bool positive);
  void Merge(const ClickSums& other);

  uint64_t examples() const { return examples_; }
  double positive_rate() const;
  double log_loss() const;
  // 0.5 without examples of both labels. Logits closer than 1 / 2048 count as equal.
  double auc() const;

 private:
  static constexpr size_t kBins = 1 << 16;

  uint64_t examples_ = 0, positive_ = 0;
  uint64_t nano_loss_ = 0;                       // sum of the losses, in 1e-9
  std::vector<uint64_t> negatives_, positives_;  // by logit
};

class ClickGenerator {
 public:
  static constexpr size_t kNumbers = 13, kCategories = 26;
  // REQUIRES: zipf > 0, cardinality 0 or >= 2, 0 < positive_rate < 1.
  explicit ClickGenerator(const ClickOptions& options);

  // Appends the lines [first, first + count).
  void Append(uint64_t first, size_t count, std::string* text, ClickSums* sums) const;

 private:
  static constexpr size_t kQuantiles = 1024, kHead = 2048, kRanges = 256;
  static constexpr size_t kMostDigits = 8;  // of a count
  static constexpr size_t kMostBytes = 2 + kNumbers * (1 + kMostDigits) + kCategories * (1 + 8) + 8;

  // A quantile of a count: its text and its effect on the logit.
  struct Count {
    char text[kMostDigits];
    float effect;
    uint32_t size;
  };
  struct Number {
    std::vector<Count> counts;  // [kQuantiles]
    uint32_t missing = 0;       // probability, in 2^-32
    float missing_effect = 0;
  };
  struct AliasEntry {
    uint32_t threshold;  // a draw of 32 bits below it gives this entry; any other gives `other`
    uint32_t other;
  };
  struct Category {
    std::vector<AliasEntry> table;  // entry t < head is rank t; the others are range t - head
    uint32_t head = 0;
    std::vector<uint32_t> edges;  // range i: ranks [edges[i], edges[i + 1])
    uint32_t missing = 0;
    uint32_t seed = 0;
  };

  void MakeNumbers();
  void MakeCategories();
  void ChooseBias();
  static uint32_t RankOf(const Category& category, uint64_t draw, uint64_t second);
  // Writes the cells after the label and returns the logit without its bias.
  double WriteCells(uint64_t stream, char** to) const;

  const ClickOptions options_;
  std::vector<Number> numbers_;
  std::vector<Category> categories_;
  double bias_ = 0;
};

}  // namespace sluice
