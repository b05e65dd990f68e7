// Weighted means of gradients, summed in double in the order given and rounded once:
// g = sum_w n_w g_w / sum_w n_w.
//
// Memory: kept from step to step. The sums of sync mode (WeightedMean, SparseGradientMean) read the
// gradients where they were buffered and hold none of their own: a step in sync mode takes (workers
// x one step) of gradients and, for sparse rows, an index of about 40 bytes each.
//
// Thread safety: none; the owner locks.
#pragma once

#include <cstdint>
#include <vector>

#include "common/optimizer/kernels.h"

namespace sluice {

struct WeightedGradient {
  const float* values;
  double weight;
};

// mean [n] = sum of weight x values [n] / total. `mean` may be one of the gradients.
void WeightedMean(const std::vector<WeightedGradient>& gradients, size_t n, double total,
                  float* mean);

// Of one dense block, one gradient after the other.
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

// Numbers keys in the order in which they come.
class KeyNumbers {
 public:
  // The number of `key`; keys().size() before the call when it is new.
  uint32_t Of(uint64_t key);
  const std::vector<uint64_t>& keys() const { return keys_; }
  void Clear();

 private:
  void Grow();

  std::vector<uint64_t> keys_;
  std::vector<uint32_t> slots_;  // number + 1, 0: empty; a power of two, at most half full
};

// Of the rows of one shard, one frame after the other. A key belongs to the sum once it was added,
// with whatever gradient or weight.
class SparseGradientSum {
 public:
  explicit SparseGradientSum(uint32_t dim) : dim_(dim) {}
  // gradients [n][dim]
  void Add(const uint64_t* keys, size_t n, const float* gradients, double weight);
  // In the order of their first addition.
  const std::vector<uint64_t>& keys() const { return numbers_.keys(); }
  // gradient [dim] of keys()[i], divided by `total`; zeros when it is 0.
  void Mean(size_t i, double total, float* gradient) const;
  void Clear();

 private:
  const uint32_t dim_;
  const Kernels& kernels_ = BestKernels();
  KeyNumbers numbers_;
  std::vector<double> sums_;  // [keys().size()][dim]
};

// The same with the same results, of gradients that stay where they are until Clear.
class SparseGradientMean {
 public:
  explicit SparseGradientMean(uint32_t dim) : dim_(dim), sum_(dim) {}
  void Add(const uint64_t* keys, size_t n, const float* gradients, double weight);
  const std::vector<uint64_t>& keys() const { return numbers_.keys(); }
  void Mean(size_t i, double total, float* gradient);
  void Clear();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Addend {
    const float* gradient;
    uint32_t part;
    uint32_t next;  // of the same key
  };
  struct Chain {
    uint32_t first, last;
  };

  const uint32_t dim_;
  const Kernels& kernels_ = BestKernels();
  KeyNumbers numbers_;
  std::vector<double> weights_;  // of each Add
  std::vector<Addend> addends_;
  std::vector<Chain> chains_;  // [keys().size()]
  std::vector<double> sum_;    // [dim]
};

}  // namespace sluice
