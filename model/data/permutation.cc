#include "model/data/permutation.h"

#include "common/base/hash.h"

namespace sluice {

Permutation::Permutation(uint64_t n, uint64_t seed) : n_(n), half_bits_(1) {
  // The smallest domain of 2 * half_bits_ bits that holds n. It is smaller than 4n, so a call takes
  // fewer than 4 walks on average.
  while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
  for (int r = 0; r < 6; ++r) round_keys_[r] = CombineHash(seed, r);
}

uint64_t Permutation::operator()(uint64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = i >> half_bits_, right = i & mask;
    for (const uint64_t key : round_keys_) {
      const uint64_t next = left ^ (MixHash(right ^ key) >> (64 - half_bits_));
      left = right;
      right = next;
    }
    i = (left << half_bits_) | right;
  } while (i >= n_);
  return i;
}

}  // namespace sluice
