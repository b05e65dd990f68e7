// What a job needs of configuration, model and placement before the scheduler's core takes it:
// checks that come from outside of it.
//
// Thread safety: safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace sluice {

struct JobDraft {
  JobConfig config;                   // effective
  std::vector<TableConfig> tables;    // of the model, shard counts not yet resolved
  std::vector<std::string> warnings;  // see CheckInitialModel
};
// Reads initial_model's manifest and job when they are here. INVALID_ARGUMENT names field, value
// and fix.
absl::StatusOr<JobDraft> BuildJobDraft(const JobConfig& submitted);

// Resolves spec->tables() for so many pservers and places their shards (generation 1).
absl::Status PlaceJob(const std::vector<std::string>& pservers, JobSpec* spec);

}  // namespace sluice
