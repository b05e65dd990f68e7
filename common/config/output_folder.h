// The files that a job writes to its output folder, and the check that they replace no file of the
// user.
//
// Thread safety:
//   free functions; they may run on many threads.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/base/file_origin.h"
#include "proto/config.pb.h"

namespace sluice {

// The result of the folder's newest job; of the job whose model is there, when a later one has made
// none; and of a job whose model was replaced on a full disk.
inline constexpr char kResultFile[] = "result.json";
inline constexpr char kModelResultFile[] = "model_result.json";
inline constexpr char kReplacedResultFile[] = "replaced_result.json";

// The curves of the folder's newest job (scheduler/files/curve_files.h), for sluice report.
inline constexpr char kCurvesFile[] = "curves.jsonl";

struct OutputFile {
  std::string path;
  FileKind kind;
  bool of_model = false;  // part of the saved model, which a complete new one replaces at once
};

// The files with fixed names that a job with the output_dir `dir` writes; none if `dir` is empty.
std::vector<OutputFile> OutputFilesOf(std::string dir);

// The folder of a job's final model.
std::string ModelFolder(const JobConfig& config);

// The folder of the job's exports: export.dir, else output_dir/export. Empty: there is none.
std::string ExportRoot(const JobConfig& job);

// ALREADY_EXISTS, naming the file and the fix, if `dir` is itself the folder of a model, or if one
// of OutputFilesOf exists and Sluice did not write it. `overwrite` allows the latter only. Files of
// earlier versions, which did not mark their configurations, are recognised where possible.
absl::Status CheckOutputFolder(Env* env, const std::string& dir, bool overwrite);

}  // namespace sluice
