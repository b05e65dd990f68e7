// Checks the files that a job reads and writes, before any process is started for it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "model/data/data_check.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

// Returns the job of the submission as the functions below check it. With --resume it has no
// initial_checkpoint: only the scheduler knows whether that is read at all.
JobConfig JobToCheck(const SubmitJobRequest& request);

// Is told lines for the user at once, before what takes longer.
using TellLine = std::function<void(const std::string& line)>;

// Checks a job that runs on this host. Its data, initial model and initial checkpoint must be
// readable; its output folder (`default_output` when output_dir is empty) and trace_file must be
// writable; the beginnings of its data files must be what the job file says (CheckDataLines).
// Leaves nothing behind. INVALID_ARGUMENT names the field, the path and the fix.
absl::Status CheckJobFiles(const JobConfig& job, const std::string& default_output, Env* env,
                           DataCheckReport* data, const TellLine& tell = nullptr);

// Reads the beginnings of the data files into *report. INVALID_ARGUMENT lists all errors, a line
// for each. `options.other_reader`: see there. `tell`: of stores and servers that are slow, and how
// long a sync job counts lines there; they are measured only for that.
absl::Status CheckDataLines(const JobConfig& job, Env* env, const DataCheckOptions& options,
                            DataCheckReport* report, const TellLine& tell = nullptr);

// Refuses a job that would remove the checkpoints of a run that has not finished
// (common/saved_model/unfinished_run.h), unless it resumes that run or sets `overwrite`.
absl::Status CheckKeepsUnfinished(const SubmitJobRequest& request, Env* env);

// Checks a submission with --resume against the newest checkpoint as the scheduler will
// (FindCheckpointToResume in model/resume_match.h), as far as this host sees it. INVALID_ARGUMENT:
// the job does not fit it, or it is damaged.
absl::Status CheckCanResume(const SubmitJobRequest& request, Env* env);

// Checks the files of a job that other processes will run, as far as they are on this host. The
// first training and evaluation files must have the columns that the job reads, and its initial
// model or checkpoint must fit. INVALID_ARGUMENT names the mismatch. Files that are missing here
// are left to the workers.
absl::Status CheckWhatIsHere(const JobConfig& job, Env* env);

// Checks that every pattern of the job's data files matches a file on this host. Use it when the
// scheduler listens on a loopback address, so that the workers run here. They may read files that
// this user cannot, so read permission is not checked. INVALID_ARGUMENT names the field and the
// pattern.
absl::Status CheckDataIsHere(const JobConfig& job);

// Returns, for a dry run, the warnings that the job's status would show later, one line each.
std::vector<std::string> WarningsOf(const SubmitJobRequest& request, Env* env);

// Returns how the features of the job differ from those of the model or checkpoint that it starts
// from, and what its tables keep, one line each. Empty when nothing differs, and when the files
// cannot be read here.
std::vector<std::string> NotesOf(const SubmitJobRequest& request, Env* env);

// Checks the outputs of a job that other processes will run, possibly as another user. output_dir
// must not be a file or lie below one; trace_file must not be a folder or lie below a file.
absl::Status CheckOutputIsNoFile(const JobConfig& job);

}  // namespace sluice::cli
