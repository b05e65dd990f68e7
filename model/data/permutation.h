// A seeded permutation of [0, n) in constant memory, with random access to its elements.
//
// It is a balanced Feistel network of 6 rounds over the next even power of two. Values outside
// [0, n) are permuted again until they are inside.
//
// Source: cycle walking (Black and Rogaway 2002).
//
// Thread safety: immutable.
#pragma once

#include <cstdint>

namespace sluice {

class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed);
  uint64_t size() const { return n_; }
  // REQUIRES: i < size().
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t n_;
  int half_bits_;
  uint64_t round_keys_[6];
};

}  // namespace sluice
