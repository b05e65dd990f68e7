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

// Part p of n parts holds the keys with ShardOfKey(key, n) == p. A shard is one of num_shards such
// parts. So the parts of a saved model and the shards of a job overlap in contiguous runs, for any
// numbers of parts and shards.
struct ShardSpan {
  uint32_t first = 0, last = 0;  // both included
};

// The shards that can hold keys of part `part` of `parts`, for a table of `num_shards` shards.
// REQUIRES: part < parts; num_shards > 0.
inline ShardSpan ShardsOfPart(uint32_t part, uint32_t parts, uint32_t num_shards) {
  const uint64_t begin = uint64_t{part} * num_shards;
  const uint64_t end = (uint64_t{part} + 1) * num_shards;
  return {static_cast<uint32_t>(begin / parts),
          static_cast<uint32_t>((end + parts - 1) / parts - 1)};
}

// Uniform in [0, 1), 24 bits.
inline float HashToUnit(uint64_t h) { return static_cast<float>(h >> 40) * 0x1p-24f; }

}  // namespace sluice
