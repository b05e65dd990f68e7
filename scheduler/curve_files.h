// The event file of a job beside those that earlier jobs left in its folder.
//
// TensorBoard draws all event files of one folder as one run. So the curve of a job is apart until
// it is complete: where the folder holds an earlier one, it grows in a subfolder `rerun-N`, which
// TensorBoard shows as a run of its own. Complete puts it in the place of the earlier curves; of a
// job that ends otherwise it stays in its subfolder.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "scheduler/event_file.h"

namespace sluice {

class CurveFiles {
 public:
  // `dir` exists. `env` outlives the curve.
  static absl::StatusOr<std::unique_ptr<CurveFiles>> Begin(Env* env, const std::string& dir,
                                                           const std::string& host, absl::Time now);
  EventFile* events() { return events_.get(); }

  // No points follow. Moves the file to `dir`; then event files that Sluice wrote before, there and
  // in subfolders of reruns, are removed. What cannot be removed stays, and so do copies under
  // names that Sluice does not give.
  absl::Status Complete();

 private:
  CurveFiles(Env* env, std::string dir, std::string host)
      : env_(env), dir_(std::move(dir)), host_(std::move(host)) {}
  void RemoveOthers(const std::string& folder, const std::string& kept);

  Env* const env_;
  const std::string dir_, host_;
  std::string folder_;  // of the event file
  std::unique_ptr<EventFile> events_;
};

}  // namespace sluice
