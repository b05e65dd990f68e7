// Turns a caller's request into the pieces of a PullOperation.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/parameter_client.h"
#include "client/pull_operation.h"

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

}  // namespace sluice
