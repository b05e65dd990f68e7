// The headers of ranks as an array of floats, so that AllGather brings them together.
//
// Format: for each place, a header and then zeros, as long as the shortest part of PartOf. So every
// rank brings whole places.
//
// Memory: 64 bytes a place.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "common/collective/operation_header.h"

namespace sluice {

class GatheredHeaders {
 public:
  // With zeros in all places.
  explicit GatheredHeaders(size_t places) : floats_(places * kFloats) {}

  void Put(size_t place, const OperationHeader& header);
  OperationHeader At(size_t place) const;

  // The array of `n` places from `begin` on, for AllGather.
  absl::Span<float> Places(size_t begin, size_t n) {
    return absl::MakeSpan(floats_).subspan(begin * kFloats, n * kFloats);
  }
  // All places.
  absl::Span<float> all() { return absl::MakeSpan(floats_); }

 private:
  static constexpr size_t kFloats = 16;
  static_assert(sizeof(OperationHeader) <= kFloats * sizeof(float));

  std::vector<float> floats_;
};

}  // namespace sluice
