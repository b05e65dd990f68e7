// Says where the data of a job comes from: from files, or from the user's program.
//
// Thread safety:
//   pure functions.
#pragma once

#include "proto/config.pb.h"

namespace sluice {

// The program gives the batches: the job is a program's and names no files.
inline bool ProgramGivesData(const JobConfig& job) {
  return job.model().has_program() && job.data().train_files().empty() &&
         job.data().eval_files().empty();
}

// The job has data for evaluations. A program that gives the data says so with `eval`.
inline bool HasEvaluationData(const JobConfig& job) {
  return !job.data().eval_files().empty() || (ProgramGivesData(job) && job.has_eval());
}

}  // namespace sluice
