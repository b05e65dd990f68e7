// The frozen hashes, which keys, shards and initial values depend on.
//
// Changing any of them changes every saved key. Golden values in the test pin them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "common/base/mix_hash.h"

namespace sluice {

// Hashes bytes with a seed, eight bytes at a time, through a folded 128-bit product.
inline uint64_t HashBytes(std::string_view bytes, uint64_t seed) {
  constexpr uint64_t kA = 0x9E3779B97F4A7C15u, kB = 0xD6E8FEB86659FD93u;
  const char* p = bytes.data();
  size_t n = bytes.size();
  uint64_t h = seed ^ (static_cast<uint64_t>(n) * kB);
  auto fold = [](uint64_t x, uint64_t y) {
    const unsigned __int128 product = static_cast<unsigned __int128>(x) * y;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = fold(h ^ word ^ kA, kB) + kA;
  }
  uint64_t tail = 0;
  std::memcpy(&tail, p, n);
  return MixHash(fold(h ^ tail ^ kA, kB) + kA);
}

// The shard of a sparse key.
inline uint32_t ShardOfKey(uint64_t key, uint32_t num_shards) {
  return static_cast<uint32_t>(
      (static_cast<unsigned __int128>(MixHash(key ^ 0x2545F4914F6CDD1Du)) * num_shards) >> 64);
}

// Uniform in [0, 1), 24 bits.
inline float HashToUnit(uint64_t h) { return static_cast<float>(h >> 40) * 0x1p-24f; }

}  // namespace sluice
