#include "server/shards/gradient_sum.h"

#include <algorithm>
#include <utility>

#include "common/base/seeded_hash.h"

namespace sluice {
namespace {
constexpr size_t kTile = 1024;  // elements whose sums fit in the first-level cache
constexpr size_t kFirstKeySlots = 64;
template <typename T>
void ClearAndTrim(std::vector<T>* v) {
  const size_t used = v->size();
  v->clear();
  TrimToUse(used, v);
}

}  // namespace

void WeightedMean(const std::vector<WeightedGradient>& gradients, size_t begin, size_t n,
                  double total, float* mean) {
  const Kernels& kernels = BestKernels();
  double sum[kTile];
  // Tiles keep the sums in cache. Within a tile the gradients are added in the given order, because
  // another order would round differently.
  for (size_t at = 0; at < n; at += kTile) {
    const size_t count = std::min(kTile, n - at);
    std::fill_n(sum, count, 0.0);
    for (const WeightedGradient& g : gradients) {
      kernels.add_scaled(g.weight, count, g.values + begin + at, sum);
    }
    kernels.divide(total, count, sum, mean + at);
  }
}

void DenseGradientSum::Add(const float* gradient, size_t n, double weight) {
  if (sums_.empty()) sums_.assign(n, 0.0);
  BestKernels().add_scaled(weight, n, gradient, sums_.data());
}

void DenseGradientSum::Mean(double total, float* gradient) const {
  BestKernels().divide(total, sums_.size(), sums_.data(), gradient);
}

uint32_t KeyNumbers::Of(uint64_t key) {
  if (2 * keys_.size() >= slots_.size()) Grow();
  const size_t mask = slots_.size() - 1;
  // A seeded hash: peers choose the keys, and must not be able to make them all collide.
  for (size_t i = SeededHash(key) & mask;; i = (i + 1) & mask) {
    const uint32_t number_plus_1 = slots_[i];
    if (number_plus_1 == 0) {
      keys_.push_back(key);
      slots_[i] = static_cast<uint32_t>(keys_.size());
      return static_cast<uint32_t>(keys_.size() - 1);
    }
    if (keys_[number_plus_1 - 1] == key) return number_plus_1 - 1;
  }
}

void KeyNumbers::Grow() {
  slots_.assign(std::max(kFirstKeySlots, 2 * slots_.size()), 0);
  const size_t mask = slots_.size() - 1;
  for (size_t k = 0; k < keys_.size(); ++k) {
    size_t i = SeededHash(keys_[k]) & mask;
    while (slots_[i] != 0) i = (i + 1) & mask;
    slots_[i] = static_cast<uint32_t>(k + 1);
  }
}

void KeyNumbers::Clear() {
  // Slots are at most half full, and twice as many as that right after they grew.
  TrimToUse(4 * keys_.size(), &slots_);
  std::fill(slots_.begin(), slots_.end(), 0);
  ClearAndTrim(&keys_);
}

void SparseGradientSum::Add(const uint64_t* keys, size_t n, const float* gradients, double weight) {
  for (size_t i = 0; i < n; ++i) {
    const size_t at = size_t{numbers_.Of(keys[i])} * dim_;
    if (at == sums_.size()) sums_.resize(at + dim_, 0.0);
    kernels_.add_scaled(weight, dim_, gradients + i * dim_, &sums_[at]);
  }
}

void SparseGradientSum::Mean(size_t i, double total, float* gradient) const {
  // A total of 0 means that all weights are 0: 0 / 1 gives zeros, where 0 / 0 would give NaN.
  kernels_.divide(total > 0 ? total : 1.0, dim_, &sums_[i * dim_], gradient);
}

void SparseGradientSum::Clear() {
  numbers_.Clear();
  ClearAndTrim(&sums_);
}

void SparseGradientSum::Restore(const std::vector<uint64_t>& keys, std::vector<double> sums) {
  numbers_.Clear();
  for (const uint64_t key : keys) numbers_.Of(key);
  sums_ = std::move(sums);
}

void SparseGradientMean::Add(const uint64_t* keys, size_t n, const float* gradients,
                             double weight) {
  // The addends of a key form a chain in the order of the calls. Mean therefore adds in the same
  // order as SparseGradientSum and gives the same bits.
  const auto part = static_cast<uint32_t>(weights_.size());
  weights_.push_back(weight);
  for (size_t i = 0; i < n; ++i) {
    const auto addend = static_cast<uint32_t>(addends_.size());
    addends_.push_back({gradients + i * dim_, part, kNone});
    const uint32_t number = numbers_.Of(keys[i]);
    if (number == chains_.size()) {
      chains_.push_back({addend, addend});
    } else {
      addends_[chains_[number].last].next = addend;
      chains_[number].last = addend;
    }
  }
}

void SparseGradientMean::Mean(size_t i, double total, float* gradient) {
  std::fill(sum_.begin(), sum_.end(), 0.0);
  for (uint32_t a = chains_[i].first; a != kNone; a = addends_[a].next) {
    kernels_.add_scaled(weights_[addends_[a].part], dim_, addends_[a].gradient, sum_.data());
  }
  kernels_.divide(total > 0 ? total : 1.0, dim_, sum_.data(), gradient);
}

void SparseGradientMean::Clear() {
  numbers_.Clear();
  weights_.clear();
  ClearAndTrim(&addends_);
  ClearAndTrim(&chains_);
}

}  // namespace sluice
