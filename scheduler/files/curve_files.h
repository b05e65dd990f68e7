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
// Beside the event file is curves.jsonl, with the same curves thinned: `sluice report` reads it.
// Save writes it anew.
//
// Format of curves.jsonl: the line {"sluice_curves": 1, "job": "adult-1", "instance": "7", "ended":
// true}, then a line for each curve: {"name": "train/loss", "x": "step", "points": [[1, 0.5],
// ...]}. x is "step" or "epoch". A value that is no finite number is null. The result.json of the
// same job has the same instance.
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
#include "scheduler/job/thin_curve.h"

namespace sluice {

// Whether the points of the curve count steps. All other curves have a point for each epoch.
// Programs name further curves of train/.
bool CountsSteps(const std::string& tag);

class CurveFiles {
 public:
  // What the names of the subfolders begin with.
  static constexpr char kRerun[] = "rerun-";

  // `env` outlives the curve.
  // REQUIRES: `dir` exists.
  // With `from`, the new file begins with the points of the curve that the checkpoint's run has
  // left, up to the checkpoint, and takes that curve's place if it is the newest one.
  static absl::StatusOr<std::unique_ptr<CurveFiles>> Begin(
      Env* env, const std::string& dir, const std::string& host, absl::Time now,
      const std::optional<CurvePosition>& from = std::nullopt);
  // Of event files, Continue reads at most so many bytes, the newest ones.
  static constexpr uint64_t kMostRead = 16 << 20;
  // Continues the newest curve that an earlier Begin of the same instance left in `dir`. A file
  // that cannot be created yet, e.g. on a full disk, is created by a later Add. thinned() takes
  // earlier points than those of kMostRead from curves.jsonl.
  static std::unique_ptr<CurveFiles> Continue(Env* env, const std::string& dir,
                                              const std::string& host, absl::Time now,
                                              uint64_t instance);

  // Adds points, which readers see at once. An error, e.g. on a full disk, names the file and the
  // cause: these points are dropped, the file stays readable, and later points can be added.
  absl::Status Add(absl::Time now, const std::vector<Scalar>& points);

  // Writes curves.jsonl. `instance`: the job's first one. `ended`: the job has ended, in whatever
  // state, and adds no more points.
  absl::Status Save(const std::string& job_id, uint64_t instance, bool ended);
  // All points so far, those that Begin or Continue has found included.
  const ThinCurves& thinned() const { return thinned_; }

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
  void Take(const std::vector<EventPoint>& points);
  // Takes the points of curves.jsonl, if it is of this instance.
  void TakeThinned(uint64_t instance);
  void RemoveOthers(const std::string& folder, const std::vector<std::string>& kept);

  Env* const env_;
  const std::string dir_, host_;
  std::string folder_;  // where the event file is
  ThinCurves thinned_;
  bool continued_ = false;             // all curves in folder_ are the job's
  std::unique_ptr<EventFile> events_;  // null: continued, and no point could be written yet
};

}  // namespace sluice
