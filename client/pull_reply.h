// Copies the values of a reply into the arrays of the operation that asked for them.
//
// Thread safety: free functions, safe from any thread. FindDestinations needs the lock of the
// operation's owner. CopyValues needs no lock between BeginWrite and EndWrite of the operation.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/pull_operation.h"
#include "common/wire/frame.h"

namespace sluice {

// Returns one destination for every part, in the payload's order. With a null `op` every part is
// skipped. INTERNAL when header and payload contradict each other or the request.
absl::StatusOr<std::vector<PullOperation::Destination>> FindDestinations(const ShardIndex& index,
                                                                         const DecodedReply& reply,
                                                                         const PullOperation* op);

// DATA_LOSS when a value is not finite.
absl::Status CopyValues(const ShardIndex& index,
                        const std::vector<PullOperation::Destination>& destinations,
                        PayloadReader* payload);

}  // namespace sluice
