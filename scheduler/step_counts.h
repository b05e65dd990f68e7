// Sync: how many global steps an epoch has, from the examples that each rank has loaded.
//
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "model/data/data_source.h"
#include "proto/config.pb.h"

namespace sluice {

// `examples` by rank. GLOBAL: every rank must have loaded the same N; ceil(N / (batch_size x
// ranks)), or the floor with drop_last. PER_RANK_FILES: the largest count of one rank's own
// batches, counted in the same way. FAILED_PRECONDITION when there is nothing to train, or ranks
// disagree (names ranks and counts).
absl::StatusOr<uint64_t> SyncSteps(const JobConfig& config, const std::vector<uint64_t>& examples,
                                   const BadLines& bad);

// FAILED_PRECONDITION: the training data has no examples; names the first of its lines, all `bad`.
absl::Status NoExamples(const BadLines& bad);

}  // namespace sluice
