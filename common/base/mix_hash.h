// The frozen hash of 64-bit words, for the host and for CUDA kernels.
//
// Changing it changes every saved key (hash.h) and every dropout mask.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"

namespace sluice {

// The finalizer of splitmix64 (Steele, Lea, Flood 2014), a bijection of 64-bit words.
SLUICE_HD inline uint64_t MixHash(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Order matters: CombineHash(a, b) != CombineHash(b, a).
SLUICE_HD inline uint64_t CombineHash(uint64_t a, uint64_t b) {
  return MixHash(a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u);
}

}  // namespace sluice
