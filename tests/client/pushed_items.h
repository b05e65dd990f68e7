// The pushes of a pushing_worker. The test that kills it computes the same ones.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <vector>

#include "common/base/hash.h"
#include "tests/client/counting_job.h"

namespace sluice {

// Pushes that need not be acknowledged yet.
inline constexpr int kInFlight = 2;

inline std::vector<uint32_t> PushedItems(uint64_t life, uint64_t push) {
  std::vector<uint32_t> items;
  for (uint32_t item = 0; item < kItems; ++item) {
    if (MixHash(life * 1000003 + push * 101 + item) % 3 == 0) items.push_back(item);
  }
  if (items.empty()) items.push_back(0);
  return items;
}

}  // namespace sluice
