// Turns a caller's request into the pieces of a PullOperation.
//
// Thread safety: free functions.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/parameter_client.h"
#include "client/pull_operation.h"

namespace sluice {

// Dense tables whole; of sparse ones the shards that have keys. INVALID_ARGUMENT when a table is
// given twice, is not of its kind, or its keys are not grouped by its shards. `index` outlives the
// operation.
absl::StatusOr<std::shared_ptr<PullOperation>> MakePull(const ShardIndex& index,
                                                        const PullRequest& request,
                                                        PullOperation::Purpose purpose);
// A pull of every shard that keeps no values: no rows of sparse tables, and the dense values are
// dropped. It is answered when all is applied.
std::shared_ptr<PullOperation> MakeBarrier(const ShardIndex& index, PullOperation::Purpose purpose);

}  // namespace sluice
