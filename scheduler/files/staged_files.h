// The files of a job that grow while it runs, for an output folder on a store: they grow in a
// folder of this host, and are put whole.
//
// Thread safety: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"

namespace sluice {

class StagedFiles {
 public:
  // Empties the folder `local` of this host, which is removed when this is destroyed. `env`, the
  // place of the outputs, outlives this.
  static absl::StatusOr<std::unique_ptr<StagedFiles>> Begin(Env* env, const std::string& local);
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  // The Env of the folder of this host.
  Env* local_env() const { return Env::Real(); }
  // Copies the curves (CurveFiles) in `output_dir` to a folder here, and returns that. Put makes
  // those there what they are here.
  absl::StatusOr<std::string> StageCurves(const std::string& output_dir);
  // A name for a new file here, which Put copies to `path`.
  std::string StageFile(const std::string& path);

  // Copies the files that have changed since the last call, and removes those that are gone.
  absl::Status Put();

 private:
  StagedFiles(Env* env, std::string local) : env_(env), local_(std::move(local)) {}
  absl::Status PutFile(const std::string& here, const std::string& there);
  // Puts the curves in a folder here; those in its subfolders, too.
  absl::Status PutCurves(const std::string& here, const std::string& there);

  Env* const env_;
  const std::string local_;
  std::string curves_, output_dir_;           // the folder of the curves here and there
  std::map<std::string, std::string> files_;  // others, here and there
  // What was put or was there: the path there, and the path and version here.
  struct Copy {
    std::string here;
    FileIdentity identity;
  };
  std::map<std::string, Copy> copies_;
};

}  // namespace sluice
