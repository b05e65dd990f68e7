// The files that a job writes to its output folder, and the check that they replace no file of the
// user.
//
// Thread safety: free functions; they may run on many threads.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/base/file_origin.h"

namespace sluice {

struct OutputFile {
  std::string path;
  FileKind kind;
  bool of_model = false;  // replaced only when a new model is complete
};

// The files with fixed names of a job whose output_dir is `dir`; none when `dir` is empty.
std::vector<OutputFile> OutputFilesOf(std::string dir);

// ALREADY_EXISTS names the file and the fix: `dir` is itself the folder of a model, or one of
// OutputFilesOf exists and Sluice did not write it. `overwrite` allows the latter only. Files of
// versions that did not mark their configurations yet are recognised where they can be.
absl::Status CheckOutputFolder(Env* env, const std::string& dir, bool overwrite);

}  // namespace sluice
