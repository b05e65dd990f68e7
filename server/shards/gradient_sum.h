// Computes weighted means of gradients, summed in double in the given order and rounded once:
// g = sum_w n_w g_w / sum_w n_w.
//
// Memory: buffers are kept from step to step, unless they are much larger than a step needs
// (TrimToUse). In sync mode WeightedMean and SparseGradientMean read
// the buffered gradients in place. A sync step thus holds one step of gradients per worker, and an
// index of about 40 bytes per sparse row.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/optimizer/kernels.h"

namespace sluice {

// Frees the memory of a vector that holds far more than the `used` elements of the last step, so
// that one large push does not keep memory for good.
template <typename T>
void TrimToUse(size_t used, std::vector<T>* v) {
  constexpr size_t kAlwaysKept = 1024;
  if (v->capacity() > 4 * used + kAlwaysKept) std::vector<T>().swap(*v);
}

struct WeightedGradient {
  const float* values;
  double weight;
};

// Writes mean [n] = sum of weight x values [begin, begin + n) / total.
void WeightedMean(const std::vector<WeightedGradient>& gradients, size_t begin, size_t n,
                  double total, float* mean);

// Gradients that wait for gradients_to_wait, as their sum.
struct HeldSum {
  std::vector<uint64_t> keys;  // sparse: in the order of their first addition
  std::vector<double> sums;    // sparse: [keys][dim]; dense: [elements] or none
};

// Sums the gradients of one dense block, one at a time.
class DenseGradientSum {
 public:
  // Adds weight x gradient [n]; n is the same in every call.
  void Add(const float* gradient, size_t n, double weight);
  bool empty() const { return sums_.empty(); }
  // Writes the sum divided by `total` to gradient [n].
  void Mean(double total, float* gradient) const;
  void Clear() { sums_.clear(); }
  const std::vector<double>& sums() const { return sums_; }  // [n] or none
  void Restore(std::vector<double> sums) { sums_ = std::move(sums); }

 private:
  std::vector<double> sums_;
};

// Numbers keys in the order in which they come.
class KeyNumbers {
 public:
  // Returns the number of `key`. A new key gets the next number.
  uint32_t Of(uint64_t key);
  const std::vector<uint64_t>& keys() const { return keys_; }
  void Clear();

 private:
  void Grow();

  std::vector<uint64_t> keys_;
  std::vector<uint32_t> slots_;  // number + 1, 0: empty; a power of two, at most half full
};

// Sums the gradients of the rows of one shard, frame by frame. A key that was added stays in the
// sum, whatever its gradient or weight.
class SparseGradientSum {
 public:
  explicit SparseGradientSum(uint32_t dim) : dim_(dim) {}
  // gradients [n][dim]
  void Add(const uint64_t* keys, size_t n, const float* gradients, double weight);
  // The keys in the order of their first addition.
  const std::vector<uint64_t>& keys() const { return numbers_.keys(); }
  // Writes the sum for keys()[i] divided by `total` to gradient [dim]; zeros when `total` is 0.
  void Mean(size_t i, double total, float* gradient) const;
  void Clear();
  const std::vector<double>& sums() const { return sums_; }
  // Makes the sum equal to another one: its keys() and its sums(), [keys][dim].
  void Restore(const std::vector<uint64_t>& keys, std::vector<double> sums);

 private:
  const uint32_t dim_;
  const Kernels& kernels_ = BestKernels();
  KeyNumbers numbers_;
  std::vector<double> sums_;  // [keys().size()][dim]
};

// Gives the same results without copying the gradients, which must stay unchanged until Clear.
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
  std::vector<double> weights_;  // by call of Add
  std::vector<Addend> addends_;
  std::vector<Chain> chains_;  // [keys().size()]
  std::vector<double> sum_;    // [dim]
};

}  // namespace sluice
