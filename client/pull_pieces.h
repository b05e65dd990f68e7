// Makes the pieces of a PullOperation from a caller's request, and copies the values of replies
// into the arrays of the operation that asked for them.
//
// Thread safety: free functions, safe from any thread. FindDestinations needs the lock of the
// operation's owner. CopyValues needs no lock between BeginWrite and EndWrite of the operation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/pull_operation.h"
#include "client/requests.h"
#include "common/wire/frame.h"

namespace sluice {

// Pulls dense tables whole, and the shards of sparse tables that have keys. INVALID_ARGUMENT when a
// table is given twice or is of the other kind, or its keys are not grouped by shard. `index`
// outlives the operation.
absl::StatusOr<std::shared_ptr<PullOperation>> MakePull(const ShardIndex& index,
                                                        const PullRequest& request,
                                                        PullOperation::Purpose purpose);
// Pulls from every shard without keeping values: it asks for no sparse rows and drops the dense
// values. The pull completes when every shard has applied the step.
std::shared_ptr<PullOperation> MakeBarrier(const ShardIndex& index, PullOperation::Purpose purpose);

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
