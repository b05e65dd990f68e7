// Counts the most frequent values of a column in bounded memory.
//
// Invariants: with at most kMost distinct values all counts are exact. Beyond, a count is too low
// by at most error(), and every value that occurs more often than error() is held.
//
// Source: Misra and Gries, "Finding repeated elements", 1982.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace sluice {

class ValueCounts {
 public:
  static constexpr size_t kMost = 256;
  static constexpr size_t kMostBytes = 256;  // of a value; longer ones are cut

  void Add(std::string_view value);
  bool exact() const { return error_ == 0; }
  uint64_t error() const { return error_; }
  // The most frequent first; equal ones by value.
  std::vector<std::pair<std::string, uint64_t>> Sorted() const;

 private:
  absl::flat_hash_map<std::string, uint64_t> counts_;
  uint64_t error_ = 0;
};

}  // namespace sluice
