// Counts distinct values in bounded memory: exactly up to kExact values, and estimated beyond.
//
// Source: Flajolet et al. 2007 (HyperLogLog), with the estimator of Ertl, "New cardinality
// estimation algorithms for HyperLogLog sketches", 2017, algorithm 6.
//
// Memory: at most 16 KiB.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace sluice {

class DistinctSketch {
 public:
  static constexpr size_t kExact = 1024;
  // Standard error of an estimate: 1.04 / sqrt(2^14).
  static constexpr double kError = 0.0082;

  // `hash`: of a value, with all bits mixed.
  void AddHash(uint64_t hash);
  uint64_t Count() const;
  bool exact() const { return registers_.empty(); }

 private:
  static constexpr int kBits = 14;
  void AddToRegister(uint64_t hash);

  absl::flat_hash_set<uint64_t> seen_;
  std::vector<uint8_t> registers_;  // [2^kBits]; empty while exact
};

}  // namespace sluice
