// From a reply's payload to the arrays of the operation that asked for it.
//
// Thread safety: free functions. FindDestinations reads the operation under its owner's lock;
// CopyValues needs no lock between BeginWrite and EndWrite of the operation.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/pull_operation.h"
#include "common/wire/frame.h"

namespace sluice {

// One destination for every part, in the payload's order. `op` may be null: all is skipped.
// INTERNAL when header and payload contradict each other or what `request` asked for.
absl::StatusOr<std::vector<PullOperation::Destination>> FindDestinations(const ShardIndex& index,
                                                                         const DecodedReply& reply,
                                                                         const PullOperation* op);

// DATA_LOSS when a value is not finite.
absl::Status CopyValues(const ShardIndex& index,
                        const std::vector<PullOperation::Destination>& destinations,
                        PayloadReader* payload);

}  // namespace sluice
