// Estimates quantiles of numbers in bounded memory.
//
// Invariants: level h holds numbers that stand for 2^h numbers each. The sum of these weights is
// count(). While no level was compacted, all answers are exact.
//
// Source: Karnin, Lang, Liberty, "Optimal quantile approximation in streams" (KLL), 2016.
//
// Memory: about 3 kWidth numbers.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

class QuantileSketch {
 public:
  static constexpr size_t kWidth = 512;
  // The rank of an answer differs from the wanted one by less than this share of count(), with a
  // probability above 0.99.
  static constexpr double kError = 0.01;

  // `value` is finite.
  void Add(double value);
  uint64_t count() const { return count_; }
  bool exact() const { return levels_.size() <= 1; }
  // The values at the shares `q`, ascending, each in [0, 1]. 0 and 1 give the exact smallest and
  // largest value. REQUIRES: count() > 0.
  std::vector<double> Quantiles(const std::vector<double>& q) const;

 private:
  size_t CapacityOf(size_t level) const;
  void Compact();

  std::vector<std::vector<double>> levels_;
  size_t held_ = 0;      // numbers in all levels
  size_t capacity_ = 0;  // of all levels
  uint64_t count_ = 0;
  double least_ = 0, most_ = 0;
  uint64_t coin_ = 0x9E3779B97F4A7C15u;
};

}  // namespace sluice
