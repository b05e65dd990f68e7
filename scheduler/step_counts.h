// Sync: how many global steps an epoch has, from the lines that each rank has counted.
//
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "model/data/data_source.h"
#include "proto/config.pb.h"

namespace sluice {

// `examples` by rank. GLOBAL: those of its share of the N examples; ceil(N / (batch_size x ranks)),
// or the floor with drop_last. PER_RANK_FILES: the largest count of one rank's own batches, counted
// in the same way. FAILED_PRECONDITION when there is nothing to train.
absl::StatusOr<uint64_t> SyncSteps(const JobConfig& config, const std::vector<uint64_t>& examples);

// FAILED_PRECONDITION: the training data has no examples; names the first of its lines, all `bad`.
absl::Status NoExamples(const BadLines& bad);

}  // namespace sluice
