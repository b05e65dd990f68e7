// Values between a shard's memory and a message.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/wire/frame.h"
#include "proto/errors.pb.h"

namespace sluice {

// Writes n values in wire form, 4 or 2 bytes each, to `to` (any alignment).
inline void EncodeValues(const float* values, size_t n, uint32_t wire_bytes, uint8_t* to) {
  if (wire_bytes == 4) {
    std::memcpy(to, values, n * 4);
    return;
  }
  for (size_t i = 0; i < n; ++i) {
    const uint16_t half = FloatToBf16(values[i]);
    std::memcpy(to + 2 * i, &half, 2);
  }
}

// Takes n values from the payload, all of them also when one is not finite.
inline PartStatus DecodeValues(PayloadReader* payload, uint32_t wire_bytes, size_t n, float* to) {
  const size_t behind = payload->remaining() - n * wire_bytes;
  if (ReadValues(payload, wire_bytes, n, to)) return PART_OK;
  payload->Skip(payload->remaining() - behind);
  return PART_NOT_FINITE;
}

// value + scale x delta, rounded once.
inline float AddScaledDelta(float value, float delta, double scale) {
  return static_cast<float>(static_cast<double>(value) + scale * static_cast<double>(delta));
}

}  // namespace sluice
