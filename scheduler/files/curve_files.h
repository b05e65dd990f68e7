// Keeps a job's event file apart from those that earlier jobs left in its folder.
//
// TensorBoard draws all event files of one folder as one run. When the folder holds an earlier
// curve, the new one grows in a subfolder `rerun-N`, which TensorBoard shows as a separate run.
// Complete replaces the earlier curves with it. If Complete is not called, it stays in `rerun-N`.
//
// A job that resumes continues the curve of the run that made its checkpoint: its file begins with
// that curve, without the points after the checkpoint, which the job makes again.
//
// A job that continues under another scheduler adds a file next to its first one, in the same
// folder, with its next points; TensorBoard draws them as one run.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "scheduler/files/event_file.h"
#include "scheduler/job/output_action.h"

namespace sluice {

class CurveFiles {
 public:
  // `env` outlives the curve.
  // REQUIRES: `dir` exists.
  // With `from`, the new file begins with the points of the curve that the checkpoint's run has
  // left, up to the checkpoint, and takes that curve's place if it is the newest one.
  static absl::StatusOr<std::unique_ptr<CurveFiles>> Begin(
      Env* env, const std::string& dir, const std::string& host, absl::Time now,
      const std::optional<CurvePosition>& from = std::nullopt);
  // Continues the newest curve that an earlier Begin left in `dir`. A file that cannot be created
  // yet, e.g. on a full disk, is created by a later Add.
  static std::unique_ptr<CurveFiles> Continue(Env* env, const std::string& dir,
                                              const std::string& host, absl::Time now);

  // Adds points, which readers see at once. An error, e.g. on a full disk, names the file and the
  // cause: these points are dropped, the file stays readable, and later points can be added.
  absl::Status Add(absl::Time now, const std::vector<Scalar>& points);

  // Moves the curve to `dir`, then removes the event files that earlier jobs wrote there and in
  // `rerun-N` subfolders. Files that cannot be removed stay, and so do copies under names that
  // Sluice does not use. No points may be added afterwards.
  absl::Status Complete();

 private:
  CurveFiles(Env* env, std::string dir, std::string host)
      : env_(env), dir_(std::move(dir)), host_(std::move(host)) {}
  // The curve of the run that made the checkpoint; points in the order of their files.
  struct Earlier {
    std::string folder;  // empty: there is none
    absl::Time begun = absl::InfinitePast();
    std::vector<EventPoint> points;
  };
  Earlier FindEarlier(const std::vector<std::string>& folders, absl::Time made) const;
  void RemoveOthers(const std::string& folder, const std::vector<std::string>& kept);

  Env* const env_;
  const std::string dir_, host_;
  std::string folder_;                 // where the event file is
  bool continued_ = false;             // all curves in folder_ are the job's
  std::unique_ptr<EventFile> events_;  // null: continued, and no point could be written yet
};

}  // namespace sluice
