// How the workers of a job synchronize: sync, async or Geo; whether they keep dense tables; and how
// many examples a step of one worker has.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/config.pb.h"

namespace sluice {

enum class Mode { kSync, kAsync, kGeo };
const char* ModeName(Mode mode);  // "sync", "async", "geo"
Mode ModeOf(const StrategyConfig& strategy);
// True when a sync job says that workers keep dense tables: all of them (sync_configs.dense) or
// single ones (tables.update_at). The model's spec has the tables.
bool WorkersKeepDenseTables(const JobConfig& job);
inline uint32_t KSteps(const StrategyConfig& s) { return s.a_sync_configs().k_steps(); }

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
