// The weights of labelled examples in 2^20 equal bins of the predicted probability.
//
// Memory: 50 bytes for each bin in use, up to 2^15 of them; then 16 MiB.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

namespace sluice {

class WeightBins {
 public:
  static constexpr int kBits = 20;
  static constexpr uint32_t kBins = 1u << kBits;
  // With more bins than this in use, all of them are kept in an array.
  static constexpr size_t kFew = 1 << 15;

  struct Weights {
    uint64_t positive = 0, negative = 0;
  };

  // The weights of a bin, for the caller to add to.
  // REQUIRES: bin < kBins. The next call of At ends the reference.
  Weights& At(uint32_t bin);
  // Calls visit(bin, weights) in ascending order for each bin with a weight.
  void ForEach(absl::FunctionRef<void(uint32_t, const Weights&)> visit) const;

 private:
  absl::flat_hash_map<uint32_t, Weights> few_;
  std::vector<Weights> all_;  // [kBins], or empty while few_ is in use
};

}  // namespace sluice
