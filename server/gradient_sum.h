// Weighted sums of gradients in double, rounded once: g = sum_w n_w g_w / sum_w n_w, in the order
// of Add.
//
// Thread safety: none; the owner locks.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace sluice {

// Of one dense block.
class DenseGradientSum {
 public:
  // Adds weight x gradient [n]; n is the same in every call.
  void Add(const float* gradient, size_t n, double weight);
  bool empty() const { return sums_.empty(); }
  // [n], divided by `total`.
  void Mean(double total, float* gradient) const;
  void Clear() { sums_.clear(); }

 private:
  std::vector<double> sums_;
};

// Of the rows of one shard. A key belongs to the sum once it was added, with whatever gradient or
// weight.
class SparseGradientSum {
 public:
  explicit SparseGradientSum(uint32_t dim) : dim_(dim) {}
  // gradients [n][dim]
  void Add(const uint64_t* keys, size_t n, const float* gradients, double weight);
  // In the order of their first addition.
  const std::vector<uint64_t>& keys() const { return keys_; }
  // gradients [keys().size()][dim], divided by `total`; zeros when it is 0.
  void Mean(double total, float* gradients) const;
  void Clear();

 private:
  const uint32_t dim_;
  absl::flat_hash_map<uint64_t, size_t> position_;
  std::vector<uint64_t> keys_;
  std::vector<double> sums_;  // [keys_.size()][dim]
};

}  // namespace sluice
