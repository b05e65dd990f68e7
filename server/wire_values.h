// Values between a shard's memory and a message.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>

#include "common/wire/frame.h"
#include "proto/errors.pb.h"

namespace sluice {

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
