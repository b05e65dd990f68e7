// Reads the beginnings of a job's data files as the job would, before anything is started for it,
// and collects everything that is wrong with them.
//
// Lines that fail this check would also fail in the job. Later lines, and files that are left out,
// may still be wrong.
//
// Memory: at most 1,000 examples of a file, of up to 16 files at a time where they are on a store,
// and the first place of each kind of problem.
//
// Thread safety: free function, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "model/features/feature_schema.h"
#include "proto/config.pb.h"

namespace sluice {

// Bounds of the check of train_files, and apart from them of eval_files; `time` is for both.
struct DataCheckOptions {
  size_t sampled_files = 64;   // whose lines are read: the first, the last and others between them
  size_t opened_files = 1000;  // that are opened, to look at their form and their header
  uint64_t bytes = 1 << 20;    // of the text of a sampled file
  uint64_t lines = 1000;       // of a sampled file
  absl::Duration time = absl::Seconds(10);
  // Another user will read the files. Those that this user may not read, or whose folder this user
  // may not list, are left out.
  bool other_reader = false;
};

struct DataCheckReport {
  // One line for each kind of problem, the most likely cause first: problems of whole files, then
  // those of most lines. Each names the field, the first place, and how often it occurs.
  std::vector<std::string> errors;
  // Problems that data.max_bad_lines allows, and data that was seen whole and has one label only, or
  // no examples to evaluate.
  std::vector<std::string> warnings;
  // One line for each field: how much was looked at, and how many files were not.
  std::vector<std::string> coverage;
};

// Checks the files that train_files (unless evaluate_only) and eval_files name here. `schema` is
// that of the job's model.
DataCheckReport CheckData(const JobConfig& job, const std::shared_ptr<const FeatureSchema>& schema,
                          Env* env, Clock* clock,
                          const DataCheckOptions& options = DataCheckOptions());

}  // namespace sluice
