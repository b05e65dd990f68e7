// Prepares a submitted job for the scheduler's core: fills in and checks its configuration, asks
// its model for the tables, and places their shards.
//
// Thread safety: safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/model_match.h"
#include "proto/scheduler.pb.h"

namespace sluice {

struct JobDraft {
  JobConfig config;                   // effective
  std::vector<TableConfig> tables;    // of the model, shard counts not yet resolved
  std::vector<std::string> warnings;  // see StartCheck
  std::vector<std::string> notes;     // see StartCheck

  // Takes what a model or checkpoint gives to the job. Call it for one of them.
  void TakeStart(StartCheck start);
};

// Reads the manifest and job of initial_model if this host has them; initial_checkpoint is for
// FindInitialCheckpoint. `pserver_num`: of the cluster; with 0 the workers keep all tables.
// INVALID_ARGUMENT names the field, its value and the fix.
absl::StatusOr<JobDraft> BuildJobDraft(const JobConfig& submitted, uint32_t pserver_num, Env* env);

// Resolves the shard counts of spec->tables() and places the shards on `pservers` (generation 1).
// Shards stay at the pservers that have them by spec->route(), if these are among `pservers`.
// FAILED_PRECONDITION: there are shards, but no pservers.
absl::Status PlaceJob(const std::vector<std::string>& pservers, JobSpec* spec);

}  // namespace sluice
