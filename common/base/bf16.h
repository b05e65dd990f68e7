// Rounds float32 values to bfloat16.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace sluice {

// Rounds to the nearest, ties to even. NaN stays NaN. It has no branch on the value, so that loops
// over it are vectorized, and is always inlined, so that each caller compiles it for its own
// instruction set.
SLUICE_HD inline __attribute__((always_inline)) uint16_t RoundToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet_nan : rounded);
}

// The value of bfloat16 bits, exactly.
SLUICE_HD inline __attribute__((always_inline)) float WidenBf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace sluice
