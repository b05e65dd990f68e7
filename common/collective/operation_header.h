// What a rank says about an operation, so that all ranks can see whether they agree.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/collective/collective.h"

namespace sluice {

struct OperationHeader {
  // The step of an operation that has none.
  static constexpr uint64_t kNoStep = ~uint64_t{0};
  // gloo: the most bytes of values that follow a header in the same message.
  static constexpr size_t kMaxInlineBytes = size_t{64} << 10;
  enum Kind : uint32_t {
    kNone,
    kWeightedMean,
    kAllReduce,
    kReduceScatter,
    kAllGather,
    kBroadcast,
    kBarrier,
    kHello,         // gloo: the first message of a rank
    kAcknowledged,  // gloo: the sender has got everything of the operation before
    kFailed         // gloo: the sender has given up; `op` and `root`: kind and rank of a GroupFault
  };
  uint32_t kind = kNone;
  uint32_t op = 0;            // Collective::Op
  uint32_t root = 0;          // of a broadcast
  uint32_t inline_bytes = 0;  // gloo: of values that follow; not compared
  uint64_t n = 0;             // elements; a broadcast: bytes
  uint64_t step = 0;
  double weight = 1;  // of a weighted mean
  uint32_t wire = 0;  // Collective::Wire; of a weighted mean

  bool in_bf16() const { return wire == static_cast<uint32_t>(Collective::Wire::kBf16); }
  // Bytes of a value that travels.
  size_t wire_bytes() const { return in_bf16() ? 2 : 4; }
};

// The headers of the operations of a Collective. `n` counts the elements of the array.
OperationHeader WeightedMeanHeader(uint64_t step, size_t n, double weight, Collective::Wire wire);
// `kind`: kAllReduce or kReduceScatter.
OperationHeader ReductionHeader(OperationHeader::Kind kind, size_t n, Collective::Op op);
OperationHeader AllGatherHeader(size_t n);
OperationHeader BroadcastHeader(size_t bytes, uint32_t root);
OperationHeader BarrierHeader();

// "the weighted mean of step 17".
std::string Describe(const OperationHeader& header);

// INVALID_ARGUMENT unless the operations of all ranks are the same and possible. All ranks come to
// the same verdict.
absl::Status CheckAgreement(absl::Span<const OperationHeader> of_ranks);

// The sum of the weights, in the order of the ranks.
float TotalWeight(absl::Span<const OperationHeader> of_ranks);

// The headers of ranks as an array of floats, so that AllGather brings them together.
//
// Format: for each place, a header and then zeros, as long as the shortest part of PartOf. So every
// rank brings whole places.
//
// Memory: 64 bytes a place.
//
// Thread safety: one thread.
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
