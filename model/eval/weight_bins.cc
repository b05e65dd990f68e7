#include "model/eval/weight_bins.h"

#include <algorithm>

namespace sluice {
namespace {

bool IsEmpty(const WeightBins::Weights& weights) {
  return weights.positive == 0 && weights.negative == 0;
}

}  // namespace

WeightBins::Weights& WeightBins::At(uint32_t bin) {
  if (!all_.empty()) return all_[bin];
  Weights& weights = few_[bin];
  if (few_.size() <= kFew) return weights;
  all_.resize(kBins);
  for (const auto& [at, kept] : few_) all_[at] = kept;
  few_ = {};
  return all_[bin];
}

void WeightBins::ForEach(absl::FunctionRef<void(uint32_t, const Weights&)> visit) const {
  for (uint32_t bin = 0; bin < all_.size(); ++bin) {
    if (!IsEmpty(all_[bin])) visit(bin, all_[bin]);
  }
  std::vector<std::pair<uint32_t, Weights>> sorted(few_.begin(), few_.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [bin, weights] : sorted) {
    if (!IsEmpty(weights)) visit(bin, weights);
  }
}

}  // namespace sluice
