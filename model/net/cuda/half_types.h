// bf16 and fp16 as bits, converted by integer code that the host and the kernels share.
//
// Conversion rounds to nearest even. A value too large for fp16 becomes infinite; NaN stays NaN.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace sluice::cuda {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

SLUICE_HD inline uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
SLUICE_HD inline float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

SLUICE_HD inline float ToFloat(float value) { return value; }
SLUICE_HD inline float ToFloat(Bf16 value) {
  return FloatOf(static_cast<uint32_t>(value.bits) << 16);
}
SLUICE_HD inline float ToFloat(Fp16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t rest = value.bits & 0x7FFFu;
  if (rest >= 0x7C00u) return FloatOf(sign | 0x7F800000u | ((rest & 0x3FFu) << 13));
  // Below 2^-14 the fraction counts steps of 2^-24.
  if (rest < 0x400u) return FloatOf(sign | BitsOf(static_cast<float>(rest) * 0x1p-24f));
  return FloatOf(sign | ((rest << 13) + (112u << 23)));
}

SLUICE_HD inline void FromFloat(float value, float* to) { *to = value; }
SLUICE_HD inline void FromFloat(float value, Bf16* to) {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  const uint32_t nan = bits | 0x400000u;
  to->bits = static_cast<uint16_t>(((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded) >> 16);
}
SLUICE_HD inline void FromFloat(float value, Fp16* to) {
  const uint32_t bits = BitsOf(value), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7FFFFFFFu;
  uint32_t half;
  if (rest > 0x7F800000u) {
    half = 0x7E00u;
  } else if (rest >= 0x477FF000u) {  // 65520, halfway between the largest and the next step
    half = 0x7C00u;
  } else if (rest < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to steps of 2^-24
    half = BitsOf(FloatOf(rest) + 0.5f) - 0x3F000000u;
  } else {
    half = (rest + 0xFFFu + ((rest >> 13) & 1u) - (112u << 23)) >> 13;
  }
  to->bits = static_cast<uint16_t>(sign | half);
}

// Whether the value is infinite or NaN, and so cannot be used in a product.
SLUICE_HD inline bool Overflowed(float) { return false; }  // f32 is checked where it is sent
SLUICE_HD inline bool Overflowed(Bf16) { return false; }   // bf16 has the range of f32
SLUICE_HD inline bool Overflowed(Fp16 value) { return (value.bits & 0x7C00u) == 0x7C00u; }

// Stores the value. Sets *overflow to 1 if it overflowed; any number of threads may do so.
template <typename T>
SLUICE_HD inline void Store(float value, T* to, uint32_t* overflow) {
  FromFloat(value, to);
  if (Overflowed(*to)) *overflow = 1;
}

}  // namespace sluice::cuda
