// Writes the files of one job: OUTPUT_DIR/job.textproto at the start, then its curve, trace and
// checkpoints, and at the end the committed model and result.json.
//
// Invariants:
// - An earlier job's file is replaced only when its successor is complete: the model when this job
//   is done and has saved one, the curve when it is done and has trained, the result when it has
//   ended.
// - With checkpoint.save: BEST the model of the best epoch is prepared in OUTPUT_DIR/model, and put
//   in force when the job is done. Those that checkpoints name stay until the checkpoints go.
// - A job that ends without a model keeps the result of the model's job as model_result.json.
// - Files that Sluice did not write are replaced only when the job says `overwrite`.
// - The folder is locked while the job writes to it. A job of another scheduler, or one that names
//   the folder by another path, fails and leaves it unchanged. An earlier scheduler of the same job
//   (OutputAction.again) gives the folder up as soon as it learns that it is one.
// - On a store, where nothing can be locked, OWNER stands for the lock (FolderOwner). Curves and
//   trace grow on this host, and are put whole with each checkpoint and at the end.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/base/file_lock.h"
#include "common/saved_model/export_chain.h"
#include "common/saved_model/saved_model.h"
#include "scheduler/files/curve_files.h"
#include "scheduler/files/folder_owner.h"
#include "scheduler/files/staged_files.h"
#include "scheduler/files/trace_file.h"
#include "scheduler/job/output_action.h"

namespace sluice {

class JobFolder {
 public:
  // Called between two tries to lock a folder that an earlier scheduler of the job has not given up
  // yet: waits a moment. False: do not try again.
  using AwaitFolder = std::function<bool()>;

  // `host` goes into the event file's name; traces use its clock. `env` outlives the folder.
  // `await` may be null: one try.
  // `staging`: the folder of this host below which files grow whose place is a store.
  JobFolder(Env* env, std::string host, AwaitFolder await = nullptr, std::string staging = "")
      : env_(env), host_(std::move(host)), await_(std::move(await)), staging_(std::move(staging)) {}

  // When an earlier scheduler began the job, which trains, only a folder that cannot be claimed is
  // an error. Files that cannot be written, e.g. on a full disk, are warnings.
  absl::Status Begin(const OutputAction& started);
  // Points that cannot be written are dropped with a warning, the first time. The curve continues
  // as soon as there is room.
  void AddScalars(const OutputAction& scalars);
  // A trace that cannot be written ends, with a warning.
  void AddTrace(const OutputAction& spans);
  // Puts a checkpoint in force and removes the oldest ones. On an error the checkpoint is not in
  // force, and the earlier ones are whole. *warning: a text when only the removal failed.
  // The same for an export, and its older chains.
  absl::Status Checkpoint(const OutputAction& checkpoint, std::string* warning);
  // With checkpoint.save: BEST: removes models that neither save_ids nor a checkpoint names. These
  // are models of earlier jobs, of earlier instances of this one, and of its present instance
  // before epoch `number`. Those that were saved after the core had decided this stay.
  void KeepModels(const OutputAction& models);
  // Removes the files of a checkpoint that was given up, as far as it can.
  void Discard(const OutputAction& checkpoint);
  // May be called for a job that never began. When Begin was refused: OK, and writes nothing.
  // ABORTED: an earlier scheduler of the job still has the folder, and nothing is written.
  // IsAway: may be called again, and completes what this call has begun.
  absl::Status End(const OutputAction& ended);
  // The status says that the place of the job's files does not answer at present.
  bool IsAway(const absl::Status& status) const;
  // The folder is the job's.
  bool claimed() const { return lock_.has_value() || owner_.has_value(); }

  // The curves that Begin has found, of the run that the job continues or of an earlier scheduler.
  // Null: none.
  const ThinCurves* earlier_curves() const {
    return curve_ == nullptr ? nullptr : &curve_->thinned();
  }

  // The warnings since the last call. The result also has those that came before its end.
  std::vector<std::string> TakeWarnings();

 private:
  absl::Status TryEnd(const OutputAction& ended);
  // Whether the base of the chain that `member` of this run ends is still there. A rule of a store
  // that removes what is old takes it first. FAILED_PRECONDITION: it is gone.
  absl::Status CheckBaseOf(const ExportMember& member, const std::string& root);
  absl::Status Claim(const OutputAction& action);
  absl::StatusOr<FolderLock> Lock(const std::string& dir);
  // The same for a folder of a store.
  absl::Status ClaimStore(const OutputAction& action, const std::string& dir,
                          std::optional<FolderOwner>* owner);
  // Gives up what killed processes were uploading for saves in the job's folders. A failure is a
  // warning, the first time.
  void GiveUpUploads(const JobConfig& config);
  // OK while the job has its folders. ABORTED: another writer has taken one over.
  absl::Status CheckOwned();
  // Where curves and trace grow that go to a store.
  absl::StatusOr<StagedFiles*> Staged(const std::string& job_id);
  // Puts them there. A failure is a warning, the first time.
  void PutStaged();
  absl::Status Export(const OutputAction& made);
  // Makes and claims a folder of the job outside output_dir: the value of `option`.
  absl::Status ClaimOther(const OutputAction& action, const std::string& option,
                          const std::string& dir, std::optional<FolderLock>* lock,
                          std::optional<FolderOwner>* owner);
  // Claims checkpoint.dir and the folder of the exports, if the job has them.
  absl::Status ClaimOthers(const OutputAction& action);
  // Whether the job would disturb what earlier jobs have left in its folders.
  absl::Status CheckEarlier(const OutputAction& started);
  void Warn(std::string warning);
  // Lets the next job have the folder.
  void GiveUpStore(std::optional<FolderOwner>* owner);
  absl::Status BeginFiles(const OutputAction& started);
  // Removes the prepared models that are `removable`, except those that `named` or the manifest of
  // a checkpoint names.
  void RemoveUnnamedModels(const JobConfig& config, std::vector<std::string> named,
                           const std::function<bool(const PreparedSave&)>& removable);
  // Writes curves.jsonl. A failure is a warning, the first time.
  void SaveCurves(const OutputAction& action, bool ended);
  // Completes the curve of a job that is done.
  absl::Status EndCurve(const OutputAction& ended);
  // Where the curve grows: output_dir, or a staged copy of its curves.
  absl::Status PlaceCurve(const JobConfig& config, const std::string& job_id);
  // Writes job.textproto.
  absl::Status WriteConfig(const JobConfig& config);
  // Ends the trace because of `why`.
  void EndTrace(const absl::Status& why);
  absl::Status WriteResult(const JobConfig& config, const JobResult& result);

  Env* const env_;
  const std::string host_;
  const AwaitFolder await_;
  const std::string staging_;
  bool on_store_ = false;  // output_dir
  bool again_ = false;     // an earlier scheduler began the job
  uint64_t instance_ = 0;  // the job's first one
  std::optional<FolderLock> lock_;
  std::optional<FolderLock> checkpoints_lock_;  // of a folder of checkpoints outside output_dir
  std::optional<FolderLock> exports_lock_;
  // Instead of locks, on a store.
  std::optional<FolderOwner> owner_, checkpoints_owner_, exports_owner_;
  bool refused_ = false;  // another job has the folder, or it holds files that are not Sluice's
  // The models that other jobs had prepared before this one began. Without those of a job that an
  // earlier scheduler began: its members may be saving one at that moment.
  std::set<std::string> models_before_;
  std::unique_ptr<StagedFiles> staged_;  // null: nothing goes to a store
  bool put_failed_ = false;              // a warning was given
  Env* curve_env_ = nullptr;             // of the folder of the curve, and that folder
  std::string curve_dir_;
  std::unique_ptr<CurveFiles> curve_;
  std::unique_ptr<TraceFile> trace_;  // null: not asked for, or it could not be continued
  bool lacks_points_ = false;         // of the curve: a warning was given
  bool lacks_curves_ = false;         // of curves.jsonl: likewise
  uint64_t export_base_ = 0;          // the cut of the base of this run's chain; 0: not known
  bool left_uploads_ = false;         // of killed processes: likewise
  bool was_away_ = false;             // of the place at the end: likewise
  std::vector<std::string> warnings_;
  size_t taken_ = 0;  // how many of them were taken
};

}  // namespace sluice
