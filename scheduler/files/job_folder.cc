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
#include "common/saved_model/export_chain.h"
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
    const absl::Status written = env_->WriteFile(path_, {absl::string_view(marked)});
    if (written.ok() || !env_->PlaceOf(dir_).rename) return written;
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

absl::Status PutInForce(Env* env, const std::string& model, const std::string& save_id,
                        const std::function<absl::Status()>& owned) {
  const absl::Status committed = CommitModel(model, env, save_id, owned);
  if (!absl::IsNotFound(committed)) return committed;
  // There is nothing to rename. An earlier scheduler may have died after the rename and before its
  // record said so, or the place did not answer after it. The best model may also be of a run that
  // was done, and that this one continued.
  const absl::Status saved = CheckSaved(model, save_id, env);
  if (!absl::IsNotFound(saved)) return saved;
  return absl::NotFoundError(absl::StrCat(
      "the scheduler's host does not see the model that the job saved in ", model, " (",
      committed.message(), "); give an --output_dir that scheduler, pservers and workers share"));
}

absl::Status ChainGone(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(
      what, " is gone, without which nobody could use this delta; the next export is a new base"));
}

}  // namespace

bool JobFolder::IsAway(const absl::Status& status) const {
  // INTERNAL: AsFileError of a store. A disk gives it for its own errors, also one of the network,
  // so that an end is never tried again there.
  return (on_store_ && absl::IsInternal(status)) || absl::IsUnavailable(status) ||
         absl::IsDeadlineExceeded(status);
}

void JobFolder::GiveUpStore(std::optional<FolderOwner>* owner) {
  if (owner->has_value()) {
    const absl::Status released = (*owner)->Release();
    if (!released.ok()) {
      Warn(
          absl::StrCat("the folder still says that a job writes to it: ", released.message(),
                       "; the next job there needs --resume, or --overwrite, which starts from the "
                       "beginning and loses the checkpoints"));
    }
  }
  owner->reset();
}

absl::StatusOr<FolderLock> JobFolder::Lock(const std::string& dir) {
  for (;;) {
    auto lock = FolderLock::Take(dir, env_);
    // The earlier scheduler may still be ending. Its lock goes away with its process.
    if (!absl::IsAlreadyExists(lock.status()) || !again_ || await_ == nullptr || !await_())
      return lock;
  }
}

absl::Status JobFolder::ClaimStore(const OutputAction& action, const std::string& dir,
                                   std::optional<FolderOwner>* owner) {
  FolderOwner::Claimant claimant;
  claimant.job_id = action.job_id;
  claimant.instances = action.instances;
  claimant.again = action.again;
  // A job that ends before it has begun takes nothing from others.
  claimant.replaces = action.takes_over && action.kind == OutputAction::kStarted;
  claimant.single_writer = action.config.single_writer();
  SLUICE_ASSIGN_OR_RETURN(FolderOwner claimed, FolderOwner::Claim(env_, dir, claimant));
  owner->emplace(std::move(claimed));
  return absl::OkStatus();
}

absl::Status JobFolder::CheckOwned() {
  for (const auto* owner : {&owner_, &checkpoints_owner_, &exports_owner_}) {
    if (owner->has_value()) SLUICE_RETURN_IF_ERROR((*owner)->Check());
  }
  return absl::OkStatus();
}

void JobFolder::GiveUpUploads(const JobConfig& config) {
  const auto is_export = [](const std::string& name) {
    uint64_t instance = 0, cut = 0;
    return ParseExportName(name, &instance, &cut);
  };
  std::vector<std::pair<std::string, std::function<bool(const std::string&)>>> folders = {
      {ModelFolder(config), nullptr}};
  // Another job may be writing to a folder that this one names and does not own: it never began, or
  // only its end is written again.
  const auto owns = [&](const std::string& dir, const std::optional<FolderOwner>& owner) {
    return owner.has_value() || dir == config.output_dir();
  };
  if (config.checkpoint().dir().empty() || owns(config.checkpoint().dir(), checkpoints_owner_))
    folders.emplace_back(CheckpointRoot(config), IsCheckpointName);
  if (config.has_export_() && owns(ExportRoot(config), exports_owner_))
    folders.emplace_back(ExportRoot(config), is_export);
  for (const auto& [folder, holds_saves] : folders) {
    const absl::Status given_up = GiveUpSaves(folder, holds_saves, env_);
    if (given_up.ok()) continue;
    if (!std::exchange(left_uploads_, true)) {
      Warn(absl::StrCat("uploads of killed processes may remain, which cost storage: ",
                        given_up.message(), "; docs/stores.md says how the store removes them"));
    }
    return;  // the others would fail in the same way, perhaps after as many tries
  }
}

absl::StatusOr<StagedFiles*> JobFolder::Staged(const std::string& job_id) {
  if (staged_ == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(staged_, StagedFiles::Begin(env_, absl::StrCat(staging_, "/", job_id)));
  }
  return staged_.get();
}

void JobFolder::PutStaged() {
  if (staged_ == nullptr) return;
  const absl::Status put = staged_->Put();
  if (put.ok() || put_failed_) return;
  put_failed_ = true;
  Warn(absl::StrCat("curve or trace could not be put in place: ", put.message(),
                    "; they are tried again with the next checkpoint and at the end"));
}

absl::Status JobFolder::Claim(const OutputAction& action) {
  const JobConfig& config = action.config;
  const std::string& dir = config.output_dir();
  again_ = again_ || action.again;
  if (!action.instances.empty()) instance_ = action.instances.front();
  on_store_ = !env_->PlaceOf(dir).lock;
  if (const absl::Status made = env_->MakeDirs(dir); !made.ok()) return NoOutput(dir, made);
  if (on_store_) {
    const absl::Status claimed = ClaimStore(action, dir, &owner_);
    refused_ = absl::IsAlreadyExists(claimed);
    if (!claimed.ok()) return refused_ ? claimed : NoOutput(dir, claimed);
    const absl::Status foreign = CheckForeignFiles(env_, config);
    refused_ = !foreign.ok() && !IsAway(foreign);
    if (!foreign.ok()) GiveUpStore(&owner_);
    return foreign;
  }
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

absl::Status JobFolder::ClaimOther(const OutputAction& action, const std::string& option,
                                   const std::string& dir, std::optional<FolderLock>* lock,
                                   std::optional<FolderOwner>* owner) {
  const auto refuse = [&](const absl::Status& why) {
    return absl::Status(why.code(), absl::StrCat("cannot write to ", option, " ", dir, ": ",
                                                 why.message(), "; give a writable folder"));
  };
  if (const absl::Status made = env_->MakeDirs(dir); !made.ok()) return refuse(made);
  // By identity and not by name: two names of one folder would lock it against itself.
  if (IsSameFile(env_, dir, action.config.output_dir())) return absl::OkStatus();  // it is locked
  if (!env_->PlaceOf(dir).lock) {
    if (dir == action.config.output_dir()) return absl::OkStatus();
    const absl::Status claimed = ClaimStore(action, dir, owner);
    return claimed.ok() ? claimed : refuse(claimed);
  }
  auto taken = Lock(dir);
  if (absl::IsAlreadyExists(taken.status())) {
    return absl::AlreadyExistsError(
        absl::StrCat("another job, which has not ended, writes to the same ", option, " ", dir,
                     "; give another one"));
  }
  if (!taken.ok()) return refuse(taken.status());
  lock->emplace(*std::move(taken));
  return absl::OkStatus();
}

absl::Status JobFolder::ClaimOthers(const OutputAction& action) {
  const JobConfig& config = action.config;
  if (!CanCheckpoint(config)) return absl::OkStatus();
  if (const std::string& dir = config.checkpoint().dir(); !dir.empty()) {
    SLUICE_RETURN_IF_ERROR(
        ClaimOther(action, "checkpoint.dir", dir, &checkpoints_lock_, &checkpoints_owner_));
  }
  if (!config.has_export_()) return absl::OkStatus();
  return ClaimOther(action, "export.dir", ExportRoot(config), &exports_lock_, &exports_owner_);
}

absl::Status JobFolder::CheckEarlier(const OutputAction& started) {
  const JobConfig& job = started.config;
  if (started.again || job.overwrite() || !CanCheckpoint(job)) return absl::OkStatus();
  if (!started.resumes)
    SLUICE_RETURN_IF_ERROR(CheckNoUnfinishedRun(CheckpointRoot(job), job, env_));
  if (!job.has_export_()) return absl::OkStatus();
  return CheckOwnExports(ExportRoot(job), job.output_dir(), env_);
}

absl::Status JobFolder::Begin(const OutputAction& started) {
  SLUICE_RETURN_IF_ERROR(Claim(started));
  SLUICE_RETURN_IF_ERROR(ClaimOthers(started));
  // Under the locks, as for files of others: the submission has looked before it had them.
  const absl::Status kept = CheckEarlier(started);
  refused_ = !kept.ok();
  if (refused_) {
    for (auto* owner : {&exports_owner_, &checkpoints_owner_, &owner_}) GiveUpStore(owner);
  }
  SLUICE_RETURN_IF_ERROR(kept);
  // Members of a job that goes on may be saving at this moment.
  if (!started.again) GiveUpUploads(started.config);
  return BeginFiles(started);
}

absl::Status JobFolder::BeginFiles(const OutputAction& started) {
  if (!started.again && SavesBest(started.config)) {
    for (const PreparedSave& save : ListPrepared(ModelFolder(started.config), env_))
      models_before_.insert(save.save_id);
  }
  const absl::Status written = WriteConfig(started.config);
  // A job that was running continues on a full disk, as it would have without a restart. A new one
  // is refused before it costs anything.
  if (!written.ok() && !started.again) return written;
  if (!written.ok()) Warn(std::string(written.message()));
  SLUICE_RETURN_IF_ERROR(PlaceCurve(started.config, started.job_id));
  if (started.again) {
    curve_ = CurveFiles::Continue(curve_env_, curve_dir_, host_, started.time, instance_);
  } else {
    SLUICE_ASSIGN_OR_RETURN(
        curve_, CurveFiles::Begin(curve_env_, curve_dir_, host_, started.time, started.curve_from));
  }
  if (started.config.trace_file().empty()) return absl::OkStatus();
  Env* trace_env = env_;
  std::string trace_file = started.config.trace_file();
  if (!env_->PlaceOf(trace_file).map) {
    SLUICE_ASSIGN_OR_RETURN(StagedFiles* const staged, Staged(started.job_id));
    trace_env = staged->local_env();
    trace_file = staged->StageFile(trace_file);
  }
  auto trace = TraceFile::Create(trace_env, trace_file, started.job_id, host_);
  if (!trace.ok() && !started.again) return trace.status();
  if (!trace.ok()) {
    EndTrace(trace.status());
  } else {
    trace_ = *std::move(trace);
  }
  return absl::OkStatus();
}

absl::Status JobFolder::PlaceCurve(const JobConfig& config, const std::string& job_id) {
  curve_env_ = env_;
  curve_dir_ = config.output_dir();
  if (env_->PlaceOf(curve_dir_).map) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(StagedFiles* const staged, Staged(job_id));
  curve_env_ = staged->local_env();
  SLUICE_ASSIGN_OR_RETURN(curve_dir_, staged->StageCurves(config.output_dir()));
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
  SLUICE_RETURN_IF_ERROR(CheckOwned());
  if (checkpoint.manifest.has_export_()) return Export(checkpoint);
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
      CommitCheckpoint(dir, checkpoint.config, std::move(manifest), env_, checkpoint.save_id,
                       [this] { return CheckOwned(); });
  if (!committed.ok()) {
    return absl::Status(
        committed.code(),
        absl::StrCat(committed.message(), "; the scheduler and all pservers must see the folder ",
                     root, ", and it must have room"));
  }
  // To a job that has lost the folder the checkpoints of the next one would look like old ones.
  if (!CheckOwned().ok()) return absl::OkStatus();
  SaveCurves(checkpoint, /*ended=*/false);
  PutStaged();
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

absl::Status JobFolder::CheckBaseOf(const ExportMember& member, const std::string& root) {
  const ExportFacts& facts = member.facts();
  if (member.base()) export_base_ = facts.to();
  if (export_base_ == 0) {
    SLUICE_ASSIGN_OR_RETURN(const auto chains, ListChains(root, env_, nullptr));
    for (const std::vector<ExportMember>& chain : chains) {
      if (std::any_of(chain.begin(), chain.end(),
                      [&](const ExportMember& one) { return one.dir == member.dir; })) {
        export_base_ = chain.front().facts().to();
        return absl::OkStatus();
      }
    }
    return ChainGone(absl::StrCat("the base of ", member.dir));
  }
  const std::string base = ExportFolder(root, facts.instance(), export_base_);
  const absl::Status read = ReadExport(base, env_).status();
  return absl::IsNotFound(read) ? ChainGone(base) : read;
}

absl::Status JobFolder::Export(const OutputAction& made) {
  const std::string root = ExportRoot(made.config);
  Manifest manifest = made.manifest;
  ExportFacts* const facts = manifest.mutable_export_();
  const std::string dir = ExportFolder(root, facts->instance(), facts->to());
  facts->set_unix_time(absl::ToDoubleSeconds(made.time - absl::UnixEpoch()));
  if (facts->from() != 0) {
    // Read again, and not remembered: a delta must not follow a member that somebody has removed.
    const std::string previous = ExportFolder(root, facts->instance(), facts->from());
    const auto read = ReadExport(previous, env_);
    if (absl::IsNotFound(read.status())) return ChainGone(previous);
    SLUICE_RETURN_IF_ERROR(read.status());
    const ExportMember& before = *read;
    SLUICE_RETURN_IF_ERROR(CheckBaseOf(before, root));
    facts->set_chain(before.facts().chain());
    facts->set_order(before.facts().order());
  } else {
    // Newer than all others, also where an earlier run had a clock that was ahead of this one.
    // Behind one that it did not see it would be removed at once.
    const auto chains = ListChains(root, env_, nullptr);
    if (!chains.ok() && !absl::IsNotFound(chains.status())) {
      return absl::Status(chains.status().code(),
                          absl::StrCat("the exports in ", root, ", which a new base must follow, ",
                                       "cannot be read: ", chains.status().message()));
    }
    const bool first = !chains.ok() || chains->empty();
    facts->set_order(first ? 1 : chains->front().front().facts().order() + 1);
  }
  absl::Status committed =
      PrepareModel(dir, made.config, std::move(manifest), env_, made.save_id).status();
  if (committed.ok())
    committed = CommitModel(dir, env_, made.save_id, [this] { return CheckOwned(); });
  if (!committed.ok()) {
    return absl::Status(
        committed.code(),
        absl::StrCat(committed.message(), "; the scheduler and all pservers must see the folder ",
                     root, ", and it must have room"));
  }
  if (made.manifest.export_().from() != 0) return absl::OkStatus();
  export_base_ = made.manifest.export_().to();
  // Only now, so that there is a whole chain at every moment. Not after a delta, which adds no
  // chain: the removal reads the manifests of all members.
  if (CheckOwned().ok()) {
    const ExportConfig& config = made.config.export_();
    RemoveOldChains(root, config.has_keep() ? config.keep() : 2, made.manifest.export_().instance(),
                    made.manifest.export_().to(), env_);
  }
  return absl::OkStatus();
}

void JobFolder::KeepModels(const OutputAction& models) {
  if (!CheckOwned().ok()) return;
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
  if (!CheckOwned().ok()) return;
  const ExportFacts& of = checkpoint.manifest.export_();
  const std::string dir =
      checkpoint.manifest.has_export_()
          ? ExportFolder(ExportRoot(checkpoint.config), of.instance(), of.to())
          : CheckpointFolder(CheckpointRoot(checkpoint.config), checkpoint.manifest.global_step());
  const auto in_force = ReadManifest(dir, env_);
  // A damaged manifest may be of any save.
  if (!in_force.ok() && !absl::IsNotFound(in_force.status())) return;
  if (in_force.ok()) {
    // The commit may have failed after its rename.
    for (const SavedFile& file : in_force->files()) {
      if (absl::StrContains(file.name(), checkpoint.save_id)) return;
    }
  }
  // A store may carry out a publication late that it has not answered: then its manifest must find
  // the files. Without one in force they go with the next checkpoint (RemoveOldCheckpoints).
  if (!env_->PlaceOf(dir).rename) {
    for (const PreparedSave& save : ListPrepared(dir, env_)) {
      if (save.save_id == checkpoint.save_id) return;
    }
  }
  // Only files of this save: the folder may hold those of another attempt at the same step.
  DiscardModel(dir, env_, checkpoint.save_id);
  env_->RemoveDir(dir).IgnoreError();  // fails unless the folder is empty
}

absl::Status JobFolder::End(const OutputAction& ended) {
  absl::Status status = TryEnd(ended);
  if (IsAway(status) && !std::exchange(was_away_, true))
    Warn("the place of the output did not answer when the job had ended");
  return status;
}

absl::Status JobFolder::TryEnd(const OutputAction& ended) {
  trace_ = nullptr;
  if (!lock_ && !owner_ && !refused_) {  // the job ended before Begin
    const absl::Status claimed = Claim(ended);
    if (!claimed.ok() && !refused_) return claimed;
  }
  if (refused_ && again_ && !lock_ && !owner_) {
    return absl::AbortedError(
        absl::StrCat("an earlier scheduler still writes to output_dir ", ended.config.output_dir(),
                     "; stop it, and start this scheduler again to write the result"));
  }
  // The folder is another job's. Nothing is written there, not even why.
  if (refused_) return absl::OkStatus();
  // Only folders of stores have owners, also where output_dir is on a disk.
  const auto check_owned = [this] {
    const absl::Status owned = CheckOwned();
    return absl::IsInternal(owned) ? absl::UnavailableError(owned.message()) : owned;
  };
  // Another writer has it by now; that one's result must stay. Not ABORTED, after which a later
  // scheduler would try again.
  if (const absl::Status owned = check_owned(); !owned.ok())
    return IsAway(owned) ? owned : absl::FailedPreconditionError(owned.message());
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
    if (committed.ok()) committed = PutInForce(env_, model, ended.save_id, check_owned);
    if (!committed.ok()) earlier.TakeMarkBack();
    // Another writer has the folder now: no result either.
    if (absl::IsAborted(committed)) return absl::FailedPreconditionError(committed.message());
    if (IsAway(committed)) return committed;  // the model is not lost
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
  if (IsAway(written)) return written;
  // Before Complete, which moves it.
  SaveCurves(ended, /*ended=*/true);
  const absl::Status curves = committed.ok() && written.ok() ? EndCurve(ended) : absl::OkStatus();
  PutStaged();
  GiveUpUploads(ended.config);
  // Last: who hears of it may start the next job here.
  for (auto* owner : {&exports_owner_, &checkpoints_owner_, &owner_}) GiveUpStore(owner);
  SLUICE_RETURN_IF_ERROR(committed);
  SLUICE_RETURN_IF_ERROR(written);
  return curves;
}

void JobFolder::SaveCurves(const OutputAction& action, bool ended) {
  if (curve_ == nullptr && ended && action.again) {
    const absl::Status placed = PlaceCurve(action.config, action.job_id);
    if (placed.ok())
      curve_ = CurveFiles::Continue(curve_env_, curve_dir_, host_, action.time, instance_);
  }
  if (curve_ == nullptr) return;  // the job has not begun
  const absl::Status saved = curve_->Save(action.job_id, instance_, ended);
  if (saved.ok() || lacks_curves_) return;
  lacks_curves_ = true;
  Warn(absl::StrCat(kCurvesFile, " could not be written: ", saved.message(),
                    "; sluice report shows the job without its curves"));
}

absl::Status JobFolder::EndCurve(const OutputAction& ended) {
  if (ended.result.status() != "done" || ended.config.evaluate_only()) return absl::OkStatus();
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
  const std::string json = ResultJson(result, config, kept, finished, instance_);
  const absl::Status written = env_->WriteFile(path, {absl::string_view(json)});
  if (!written.ok()) return NoOutput(dir, written);
  if (!new_model) return absl::OkStatus();
  for (const std::string& earlier : {of_model, replaced}) {
    if (IsOwnFile(env_, earlier, FileKind::kResult)) env_->RemoveFile(earlier).IgnoreError();
  }
  return absl::OkStatus();
}

}  // namespace sluice
