#include "scheduler/files/job_folder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_origin.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/output_folder.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/unfinished_run.h"
#include "scheduler/files/result_json.h"
#include "scheduler/job/resume_point.h"

namespace sluice {
namespace {

absl::Status NoOutput(const std::string& dir, const absl::Status& why) {
  const char* const fix = absl::IsResourceExhausted(why)
                              ? "; free some space, or give another --output_dir"
                              : "; give a writable --output_dir";
  return absl::Status(why.code(),
                      absl::StrCat("cannot write to output_dir ", dir, ": ", why.message(), fix));
}

// OK when no file that the job will write replaces one that Sluice did not write.
absl::Status CheckForeignFiles(Env* env, const JobConfig& config) {
  SLUICE_RETURN_IF_ERROR(CheckOutputFolder(env, config.output_dir(), config.overwrite()));
  if (config.trace_file().empty()) return absl::OkStatus();
  return CheckReplaceable(env, config.trace_file(), FileKind::kTrace, config.overwrite(),
                          "trace_file");
}

bool SavesBest(const JobConfig& config) {
  return config.checkpoint().save() == CheckpointConfig::BEST;
}

// True when the result at `path` describes a model.
bool DescribesModel(Env* env, const std::string& path) {
  if (!IsOwnFile(env, path, FileKind::kResult)) return false;
  const auto result = env->ReadFile(path);
  return result.ok() && !absl::StrContains(*result, "\n  \"model_dir\": \"\"");
}

// The result of the model that is in a folder. It is marked before the next model is put in force:
// an interruption must not leave a result that says `done` beside a model that is not its own.
class ResultOfModel {
 public:
  ResultOfModel(Env* env, std::string dir) : env_(env), dir_(std::move(dir)) {
    for (const char* name : {kResultFile, kModelResultFile}) {
      const std::string path = absl::StrCat(dir_, "/", name);
      if (!path_.empty() || !DescribesModel(env, path)) continue;
      path_ = path;
      text_ = env->ReadFile(path).value_or("");
    }
  }
  absl::Status Mark(const std::string& by_job) {
    const std::string marked = MarkReplaced(text_, by_job);
    if (path_.empty() || marked == text_) return absl::OkStatus();
    if (env_->WriteFile(path_, {absl::string_view(marked)}).ok()) return absl::OkStatus();
    // A full disk shall not cost the new model. A rename needs no room.
    aside_ = absl::StrCat(dir_, "/", kReplacedResultFile);
    return env_->RenameFile(path_, aside_);
  }
  // The model stays in force. A result that cannot be written keeps its mark.
  void TakeMarkBack() {
    if (!aside_.empty()) {
      env_->RenameFile(aside_, path_).IgnoreError();
    } else if (!path_.empty()) {
      env_->WriteFile(path_, {absl::string_view(text_)}).IgnoreError();
    }
  }

 private:
  Env* const env_;
  const std::string dir_;
  std::string path_, text_;  // empty: there is none
  std::string aside_;        // not empty: its name until then
};

absl::Status PutInForce(Env* env, const std::string& model, const std::string& save_id) {
  const absl::Status committed = CommitModel(model, env, save_id);
  if (!absl::IsNotFound(committed)) return committed;
  // There is nothing to rename. An earlier scheduler may have died after the rename and before its
  // record said so. The best model may also be of a run that was done, and that this one continued.
  if (CheckSaved(model, save_id, env).ok()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      "the scheduler's host does not see the model that the job saved in ", model, " (",
      committed.message(), "); give an --output_dir that scheduler, pservers and workers share"));
}

}  // namespace

absl::StatusOr<FolderLock> JobFolder::Lock(const std::string& dir) {
  for (;;) {
    auto lock = FolderLock::Take(dir, env_);
    // The earlier scheduler may still be ending. Its lock goes away with its process.
    if (!absl::IsAlreadyExists(lock.status()) || !again_ || await_ == nullptr || !await_())
      return lock;
  }
}

absl::Status JobFolder::Claim(const OutputAction& action) {
  const JobConfig& config = action.config;
  const std::string& dir = config.output_dir();
  again_ = again_ || action.again;
  if (const absl::Status made = env_->MakeDirs(dir); !made.ok()) return NoOutput(dir, made);
  auto lock = Lock(dir);
  if (absl::IsAlreadyExists(lock.status())) {
    refused_ = true;
    return absl::AlreadyExistsError(
        absl::StrCat("another job, which has not ended, writes to the same output_dir ", dir,
                     "; give another --output_dir"));
  }
  if (!lock.ok()) return NoOutput(dir, lock.status());
  lock_.emplace(*std::move(lock));
  // Under the lock: otherwise another job could create such a file between the check and the first
  // write.
  const absl::Status foreign = CheckForeignFiles(env_, config);
  refused_ = !foreign.ok();
  return foreign;
}

absl::Status JobFolder::ClaimCheckpoints(const JobConfig& config) {
  const std::string& dir = config.checkpoint().dir();
  if (dir.empty() || !CanCheckpoint(config)) return absl::OkStatus();
  const auto refuse = [&](const absl::Status& why) {
    return absl::Status(why.code(), absl::StrCat("cannot write to checkpoint.dir ", dir, ": ",
                                                 why.message(), "; give a writable folder"));
  };
  if (const absl::Status made = env_->MakeDirs(dir); !made.ok()) return refuse(made);
  // By identity and not by name: two names of one folder would lock it against itself.
  if (IsSameFile(env_, dir, config.output_dir())) return absl::OkStatus();  // it is locked
  auto lock = Lock(dir);
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::AlreadyExistsError(
        absl::StrCat("another job, which has not ended, writes to the same checkpoint.dir ", dir,
                     "; give another one"));
  }
  if (!lock.ok()) return refuse(lock.status());
  checkpoints_lock_.emplace(*std::move(lock));
  return absl::OkStatus();
}

absl::Status JobFolder::Begin(const OutputAction& started) {
  SLUICE_RETURN_IF_ERROR(Claim(started));
  SLUICE_RETURN_IF_ERROR(ClaimCheckpoints(started.config));
  if (const JobConfig& job = started.config;
      !started.again && !started.resumes && !job.overwrite() && CanCheckpoint(job)) {
    // Under the locks, as for files of others: the submission has looked before it had them.
    const absl::Status kept = CheckNoUnfinishedRun(CheckpointRoot(job), job, env_);
    refused_ = !kept.ok();
    SLUICE_RETURN_IF_ERROR(kept);
  }
  return BeginFiles(started);
}

absl::Status JobFolder::BeginFiles(const OutputAction& started) {
  const std::string& dir = started.config.output_dir();
  if (!started.again && SavesBest(started.config)) {
    for (const PreparedSave& save : ListPrepared(ModelFolder(started.config), env_))
      models_before_.insert(save.save_id);
  }
  const absl::Status written = WriteConfig(started.config);
  // A job that was running continues on a full disk, as it would have without a restart. A new one
  // is refused before it costs anything.
  if (!written.ok() && !started.again) return written;
  if (!written.ok()) Warn(std::string(written.message()));
  if (started.again) {
    curve_ = CurveFiles::Continue(env_, dir, host_, started.time);
  } else {
    SLUICE_ASSIGN_OR_RETURN(curve_,
                            CurveFiles::Begin(env_, dir, host_, started.time, started.curve_from));
  }
  if (started.config.trace_file().empty()) return absl::OkStatus();
  auto trace = TraceFile::Create(env_, started.config.trace_file(), started.job_id, host_);
  if (!trace.ok() && !started.again) return trace.status();
  if (!trace.ok()) {
    EndTrace(trace.status());
  } else {
    trace_ = *std::move(trace);
  }
  return absl::OkStatus();
}

absl::Status JobFolder::WriteConfig(const JobConfig& config) {
  const std::string& dir = config.output_dir();
  const std::string text = absl::StrCat(kOwnConfigLine, ToTextproto(config));
  const absl::Status written = env_->WriteFile(dir + "/job.textproto", {absl::string_view(text)});
  return written.ok() ? written : NoOutput(dir, written);
}

void JobFolder::AddScalars(const OutputAction& scalars) {
  if (curve_ == nullptr) return;  // the job could not begin
  const absl::Status added = curve_->Add(scalars.time, scalars.scalars);
  if (added.ok() || lacks_points_) return;
  lacks_points_ = true;
  Warn(absl::StrCat("the curve lacks points: ", added.message(),
                    "; it continues as soon as the file can be written"));
}

void JobFolder::AddTrace(const OutputAction& spans) {
  if (trace_ == nullptr) return;  // its failure was reported
  const absl::Status added = trace_->Add(spans.trace);
  if (!added.ok()) EndTrace(added);
}

void JobFolder::EndTrace(const absl::Status& why) {
  trace_ = nullptr;
  Warn(absl::StrCat("the trace ends before the job does: ", why.message()));
}

void JobFolder::Warn(std::string warning) { warnings_.push_back(std::move(warning)); }

std::vector<std::string> JobFolder::TakeWarnings() {
  std::vector<std::string> taken(warnings_.begin() + static_cast<ptrdiff_t>(taken_),
                                 warnings_.end());
  taken_ = warnings_.size();
  return taken;
}

absl::Status JobFolder::Checkpoint(const OutputAction& checkpoint, std::string* warning) {
  const std::string root = CheckpointRoot(checkpoint.config);
  const std::string dir = CheckpointFolder(root, checkpoint.manifest.global_step());
  Manifest manifest = checkpoint.manifest;
  // The newest checkpoint is the one that was made last. The clock does not say so: it may be set
  // back, and a later scheduler may run on a host with another one.
  uint64_t order = 0;
  for (const CheckpointInfo& earlier : ListCheckpoints(root, env_, /*damaged=*/nullptr))
    order = std::max<uint64_t>(order, earlier.manifest.checkpoint().order());
  manifest.mutable_checkpoint()->set_order(order + 1);
  manifest.mutable_checkpoint()->set_unix_time(
      absl::ToDoubleSeconds(checkpoint.time - absl::UnixEpoch()));
  const absl::Status committed =
      CommitCheckpoint(dir, checkpoint.config, std::move(manifest), env_, checkpoint.save_id);
  if (!committed.ok()) {
    return absl::Status(
        committed.code(),
        absl::StrCat(committed.message(), "; the scheduler and all pservers must see the folder ",
                     root, ", and it must have room"));
  }
  // Only after the new one is in force, so that the job has at least one at every moment.
  const uint32_t keep = std::max(checkpoint.config.checkpoint().keep(), 1u);
  absl::Status removed;
  if (const auto& own = checkpoint.instances; !own.empty()) {
    // What the job started from is needed if the job must be started again.
    const std::string& initial = checkpoint.config.initial_checkpoint();
    const std::string start =
        initial.empty() ? "" : SaveIdOfCheckpoint(ReadManifest(initial, env_).value_or(Manifest()));
    removed = RemoveOtherCheckpoints(root, env_, [&](const Manifest& one) {
      return IsOfInstances(one, own) || (!start.empty() && SaveIdOfCheckpoint(one) == start);
    });
  }
  removed.Update(RemoveOldCheckpoints(root, keep, env_, checkpoint.damaged));
  if (!removed.ok())
    *warning = absl::StrCat("old checkpoints could not be removed: ", removed.message());
  return absl::OkStatus();
}

void JobFolder::KeepModels(const OutputAction& models) {
  const std::vector<uint64_t>& instances = models.instances;
  // The action may be carried out late. The job may have saved models meanwhile that it did not
  // know: of this epoch or later ones, or of a later instance.
  RemoveUnnamedModels(models.config, models.save_ids, [&](const PreparedSave& save) {
    if (models_before_.count(save.save_id) > 0) return true;
    const auto made = [&](uint64_t instance) {
      return IsModelSaveId(models.config, instance, save.save_id);
    };
    const auto of = std::find_if(instances.begin(), instances.end(), made);
    if (of == instances.end()) return false;
    return *of != instances.back() || save.manifest.epochs() < models.number;
  });
}

void JobFolder::RemoveUnnamedModels(const JobConfig& config, std::vector<std::string> named,
                                    const std::function<bool(const PreparedSave&)>& removable) {
  // A job that goes back to one of its checkpoints, or resumes from it, needs the model that was
  // the best one then.
  for (const CheckpointInfo& kept : ListCheckpoints(CheckpointRoot(config), env_, nullptr))
    named.push_back(kept.manifest.checkpoint().result().best().save_id());
  const std::string model = ModelFolder(config);
  for (const PreparedSave& save : ListPrepared(model, env_)) {
    if (std::count(named.begin(), named.end(), save.save_id) > 0 || !removable(save)) continue;
    DiscardModel(model, env_, save.save_id);
  }
}

void JobFolder::Discard(const OutputAction& checkpoint) {
  const std::string dir =
      CheckpointFolder(CheckpointRoot(checkpoint.config), checkpoint.manifest.global_step());
  const auto in_force = ReadManifest(dir, env_);
  // A damaged manifest may be of any save.
  if (!in_force.ok() && !absl::IsNotFound(in_force.status())) return;
  if (in_force.ok()) {
    // The commit may have failed after its rename.
    for (const SavedFile& file : in_force->files()) {
      if (absl::StrContains(file.name(), checkpoint.save_id)) return;
    }
  }
  // Only files of this save: the folder may hold those of another attempt at the same step.
  DiscardModel(dir, env_, checkpoint.save_id);
  env_->RemoveDir(dir).IgnoreError();  // fails unless the folder is empty
}

absl::Status JobFolder::End(const OutputAction& ended) {
  trace_ = nullptr;
  if (!lock_ && !refused_) {  // the job ended before Begin
    const absl::Status claimed = Claim(ended);
    if (!claimed.ok() && !refused_) return claimed;
  }
  if (refused_ && again_ && !lock_) {
    return absl::AbortedError(
        absl::StrCat("an earlier scheduler still writes to output_dir ", ended.config.output_dir(),
                     "; stop it, and start this scheduler again to write the result"));
  }
  // The folder is another job's. Nothing is written there, not even why.
  if (refused_) return absl::OkStatus();
  const std::string model = ended.config.output_dir() + "/model";
  const bool done = ended.result.status() == "done";
  JobResult result = ended.result;
  // The result may have been made before a file could not be written.
  for (const std::string& warning : warnings_) {
    const auto& known = result.warnings();
    if (std::find(known.begin(), known.end(), warning) == known.end()) result.add_warnings(warning);
  }
  absl::Status committed;
  if (done && !result.model_dir().empty()) {
    ResultOfModel earlier(env_, ended.config.output_dir());
    committed = earlier.Mark(result.job());
    if (committed.ok()) committed = PutInForce(env_, model, ended.save_id);
    if (!committed.ok()) earlier.TakeMarkBack();
  } else if (SavesBest(ended.config)) {
    RemoveUnnamedModels(ended.config, {}, [](const PreparedSave&) { return true; });
  } else {
    DiscardModel(model, env_, ended.save_id);
  }
  if (!committed.ok()) {
    result.set_status("failed");
    result.set_message(std::string(committed.message()));
    result.clear_model_dir();
    result.clear_model_digest();
  }
  // Last: whoever finds result.json finds the model that it names.
  const absl::Status written = WriteResult(ended.config, result);
  SLUICE_RETURN_IF_ERROR(committed);
  SLUICE_RETURN_IF_ERROR(written);
  if (!done || ended.config.evaluate_only()) return absl::OkStatus();
  if (curve_ == nullptr && ended.again)
    curve_ = CurveFiles::Continue(env_, ended.config.output_dir(), host_, ended.time);
  // The model and the result are in place; an earlier curve next to the new one does no harm.
  const absl::Status completed = curve_ == nullptr ? absl::OkStatus() : curve_->Complete();
  if (!completed.ok())
    Warn(absl::StrCat("earlier curves could not be replaced: ", completed.message()));
  return absl::OkStatus();
}

absl::Status JobFolder::WriteResult(const JobConfig& config, const JobResult& result) {
  const std::string& dir = config.output_dir();
  const std::string path = absl::StrCat(dir, "/", kResultFile);
  const std::string of_model = absl::StrCat(dir, "/", kModelResultFile);
  const std::string replaced = absl::StrCat(dir, "/", kReplacedResultFile);
  SLUICE_RETURN_IF_ERROR(
      CheckReplaceable(env_, path, FileKind::kResult, config.overwrite(), "output_dir"));
  // The model of an earlier run stays in the folder when this run makes none. Then the result that
  // describes it is kept next to it.
  const bool new_model = !result.model_dir().empty();
  if (!new_model && DescribesModel(env_, path)) {
    SLUICE_ASSIGN_OR_RETURN(const std::string earlier, env_->ReadFile(path));
    const absl::Status kept = env_->WriteFile(of_model, {absl::string_view(earlier)});
    if (!kept.ok()) return NoOutput(dir, kept);
  }
  std::vector<std::string> kept, finished;
  // An evaluation finishes no run: it leaves the checkpoints of others as they are.
  if (result.status() == "done" && CanCheckpoint(config)) {
    kept = NamesOfCheckpoints(CheckpointRoot(config), env_);
  } else {
    finished = FinishedCheckpoints(path, env_);
  }
  const std::string json = ResultJson(result, config, kept, finished);
  const absl::Status written = env_->WriteFile(path, {absl::string_view(json)});
  if (!written.ok()) return NoOutput(dir, written);
  if (!new_model) return absl::OkStatus();
  for (const std::string& earlier : {of_model, replaced}) {
    if (IsOwnFile(env_, earlier, FileKind::kResult)) env_->RemoveFile(earlier).IgnoreError();
  }
  return absl::OkStatus();
}

}  // namespace sluice
