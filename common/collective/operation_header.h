// What a rank says about an operation, so that all ranks can see whether they agree.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace sluice {

struct OperationHeader {
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
};

// "the weighted mean of step 17".
std::string Describe(const OperationHeader& header);

// INVALID_ARGUMENT unless the operations of all ranks are the same and possible. All ranks come to
// the same verdict.
absl::Status CheckAgreement(absl::Span<const OperationHeader> of_ranks);

// The sum of the weights, in the order of the ranks.
float TotalWeight(absl::Span<const OperationHeader> of_ranks);

}  // namespace sluice
