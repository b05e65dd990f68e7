// The malformed lines of some text: how many there are, and the first ones for messages.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

// Counts all malformed lines and keeps the first ones for messages.
struct BadLines {
  static constexpr size_t kNamed = 5;
  uint64_t count = 0;
  std::vector<std::string> first;  // "file:line: reason"
  // When set, receives for each bad line the number of examples before it in the batch being read.
  std::vector<uint64_t>* positions = nullptr;
  void Add(const std::string& where, const absl::Status& why);
  void Merge(const BadLines& other);
  std::string Describe() const;
};

}  // namespace sluice
