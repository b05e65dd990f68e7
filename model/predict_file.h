// Scores the lines of files, or of standard input, with a saved model.
//
// Format: one line for each data line, in input order: the probability as "%.9g", or "nan" for a
// line that cannot be parsed. With an id_column each line is the id, a tab, and the score: the
// score always follows the last tab. An id that has a tab, a line end or a quote is quoted as in
// CSV: in quotes, and its own quotes doubled. The id is empty if the line cannot be split into
// columns.
//
// Memory: the model, and a bounded number of pieces of text for each thread, however large the
// files are.
//
// Thread safety: free functions. PredictFile starts the threads of a prediction itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/data/data_source.h"

namespace sluice {

struct PredictOptions {
  Env* env = nullptr;  // required; for the files of the model
  std::string model_dir;
  // Files or globs, scored in this order; the files of one glob in the order of their names. A file
  // that is named twice is scored twice. "-" is standard input; it must be the only entry, with
  // worker_num 1. The label column may be missing.
  std::vector<std::string> data_files;
  // The state that data_files must have, set by FixInput. Null: PredictFile calls FixInput.
  std::shared_ptr<const DataFiles> seen;
  std::string output_file;  // see ResolveOutput; kStandardOutput is standard output
  int worker_num = 1;       // threads that parse and score; the output does not depend on it
  int net_threads = 1;      // threads that compute in the network of each of them
  // Column of the data that is written before each score; "" for none.
  std::string id_column;
  bool replace = true;  // false: a file at output_file is kept, with ALREADY_EXISTS
  // More malformed lines than this are an error. Unset: data.max_bad_lines of the model's job.
  std::optional<uint64_t> max_bad_lines;
  // Called after each piece with the number of lines written so far, by one thread at a time, but
  // not always the same. May be null.
  std::function<void(uint64_t lines)> progress;
};

struct PredictSummary {
  uint64_t examples = 0;  // scored
  BadLines bad;           // lines that cannot be parsed; they score "nan"
};

// Replaces the patterns of data_files by the files that they match now and records the state of
// each file. Does nothing with standard input. Statuses as ExpandFiles and SampleFile.
absl::Status FixInput(PredictOptions* options);

// An error leaves output_file unchanged, unless it is a pipe or device. When several threads fail,
// returns the error that is earliest in the input. FAILED_PRECONDITION if a data file changes
// meanwhile, or if the scores must not be used: too many lines, or all of them, are malformed, or
// there are no lines. RESOURCE_EXHAUSTED if a thread cannot be started.
//
// The scores are written to FILE.PID.unfinished next to output_file, and renamed when they are
// complete. Those of earlier runs with the same output that were killed are removed first. Such a
// file is removed only when its process has ended, no process has it locked, it is a regular file
// of this user, and it holds scores or nothing.
absl::StatusOr<PredictSummary> PredictFile(const PredictOptions& options);

}  // namespace sluice
