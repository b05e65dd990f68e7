// How many examples a step of one worker has.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/config/mode.h"
#include "proto/config.pb.h"

namespace sluice {

// The batches of a step (SyncConfigs.gradient_merge_steps); 1 in async and Geo.
inline uint64_t MergedBatches(const JobConfig& job) {
  if (ModeOf(job.strategy()) != Mode::kSync) return 1;
  return std::max(job.strategy().sync_configs().gradient_merge_steps(), 1u);
}

// The examples of a worker's step. In sync mode lanes may not divide evenly, so that some ranks
// have a few more.
inline uint64_t StepExamples(const JobConfig& job) {
  return job.train().batch_size() * MergedBatches(job);
}

}  // namespace sluice
