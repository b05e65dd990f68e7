#include "server/gradient_sum.h"

namespace sluice {
namespace {
void AddScaled(const float* from, size_t n, double weight, double* to) {
  for (size_t i = 0; i < n; ++i) to[i] += weight * static_cast<double>(from[i]);
}

void Divide(const std::vector<double>& sums, double total, float* to) {
  for (size_t i = 0; i < sums.size(); ++i) to[i] = static_cast<float>(sums[i] / total);
}
}  // namespace

void DenseGradientSum::Add(const float* gradient, size_t n, double weight) {
  if (sums_.empty()) sums_.assign(n, 0.0);
  AddScaled(gradient, n, weight, sums_.data());
}

void DenseGradientSum::Mean(double total, float* gradient) const { Divide(sums_, total, gradient); }

void SparseGradientSum::Add(const uint64_t* keys, size_t n, const float* gradients, double weight) {
  for (size_t i = 0; i < n; ++i) {
    const auto [at, added] = position_.try_emplace(keys[i], keys_.size());
    if (added) {
      keys_.push_back(keys[i]);
      sums_.resize(sums_.size() + dim_, 0.0);
    }
    AddScaled(gradients + i * dim_, dim_, weight, &sums_[at->second * dim_]);
  }
}

void SparseGradientSum::Mean(double total, float* gradients) const {
  Divide(sums_, total > 0 ? total : 1.0, gradients);
}

void SparseGradientSum::Clear() {
  position_.clear();
  keys_.clear();
  sums_.clear();
}

}  // namespace sluice
