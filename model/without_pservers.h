// Fits a job to a cluster without pservers, where the workers keep all tables.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/model_list.h"
#include "proto/config.pb.h"

namespace sluice {

// Sets strategy.sync_configs.dense to COLLECTIVE, unless all tables are COLLECTIVE already; a job
// that names only some tables itself (tables.update_at) is refused. A job that only evaluates also
// becomes sync, because mode and update_at do not matter for it. Returns a sentence about what it
// changed, or "". INVALID_ARGUMENT says why the job needs pservers, and what to do. The job is
// effective before and after; its model is in `models`.
absl::StatusOr<std::string> FitWithoutPservers(const ModelList& models, JobConfig* job);

// True if no table of the job is on pservers: its model has no sparse table, and every dense one is
// COLLECTIVE. Errors of ModelSpec::Create.
absl::StatusOr<bool> NeedsNoPservers(const ModelList& models, const JobConfig& job);

}  // namespace sluice
