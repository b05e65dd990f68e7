// The job that a program declares, and the folder in which it offers the job to its launcher.
//
// Format: the folder (SLUICE_PROGRAM_DIR) has initial_values/, a saved model with the parameters'
// first values, and then job.textproto, by one rename. The launcher waits for the latter.
//
// Thread safety: pure functions, except OfferJob: one process at a time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/env.h"
#include "proto/config.pb.h"

namespace sluice {

// What the program gives in place of files.
struct ProgramSources {
  bool train = false, evaluate = false;
  // One of them gives batches of values (given_batch.h), or a table. Both may be true.
  bool batches = false, table = false;
  // Of the table that gives the training data, in its order; empty: it is not known.
  std::vector<std::string> columns;
};

// Makes the job of a program. `job`: a JobConfig in text format without a model, whose relative
// paths are resolved against `base_dir` ("": the current folder). `program`: a ProgramConfig in
// JSON. The result has the digest, and otherwise only what the two say: defaults and overrides come
// later. Features with a '*' are expanded where the program gives the data. INVALID_ARGUMENT names
// what cannot be parsed, or contradicts `sources`.
absl::StatusOr<JobConfig> DeclareJob(const std::string& job, const std::string& base_dir,
                                     const std::string& program,
                                     const ProgramSources& sources = {});

// The values of a parameter, [n], row-major.
struct ParameterValues {
  std::string name;
  const float* values = nullptr;
  size_t n = 0;
};

// Writes the values and the job into `dir`. Does nothing when a job is there already: the first
// values win, also when the process that wrote them was killed and started again.
// INVALID_ARGUMENT: the job cannot be trained, or a parameter has no values or another number.
absl::Status OfferJob(const std::string& dir, JobConfig job,
                      absl::Span<const ParameterValues> values, Env* env);

// Whether a job has been offered in `dir`. FAILED_PRECONDITION: it is that of another program than
// `declared`, such as of a script that was edited since; names the first difference.
absl::StatusOr<bool> CheckOffer(const std::string& dir, const JobConfig& declared, Env* env);

}  // namespace sluice
