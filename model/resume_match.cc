#include "model/resume_match.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/config/resume_rules.h"
#include "common/saved_model/saved_model.h"

namespace sluice {

void KeepUnknownValues(const JobConfig& saved, JobConfig* config) {
  std::map<std::string, const Feature*> earlier;
  for (const Feature& feature : saved.features()) earlier[feature.name()] = &feature;
  for (Feature& feature : *config->mutable_features()) {
    const auto found = earlier.find(feature.name());
    if (!feature.has_categorical() || found == earlier.end() || !found->second->has_categorical())
      continue;
    if (found->second->categorical().has_separate_unknown()) {
      feature.mutable_categorical()->set_separate_unknown(
          found->second->categorical().separate_unknown());
    } else {
      feature.mutable_categorical()->clear_separate_unknown();
    }
  }
}

absl::Status CheckResumeState(const std::string& dir, const Manifest& manifest,
                              const JobConfig& job) {
  const CheckpointState& state = manifest.checkpoint();
  const bool sync = ModeOf(job.strategy()) == Mode::kSync;
  // The file may come from anywhere. Values that are used as a divisor or an index later are
  // checked here.
  if (!manifest.has_checkpoint() || state.mode() != ModeName(ModeOf(job.strategy())) ||
      state.worker_num() == 0 || state.workers_size() != static_cast<int>(state.worker_num()) ||
      state.steps_done() > state.steps_per_epoch() || (sync && state.global_batch() == 0) ||
      (!sync && state.task_bytes() == 0)) {
    return absl::DataLossError(absl::StrCat(
        "the manifest in ", dir, " contradicts itself; give --allow_older to resume from the ",
        "newest intact checkpoint, or move this folder away"));
  }
  if (state.epoch() >= job.train().epochs()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "train.epochs is ", job.train().epochs(), ", but the checkpoint in ", dir, " is in epoch ",
        state.epoch() + 1, " already; give at least ", state.epoch() + 1, OrStartAnew(dir)));
  }
  if (job.data().assignment() == DataConfig::PER_RANK_FILES &&
      job.worker_num() != state.worker_num()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker_num is ", job.worker_num(), ", but the checkpoint in ", dir, " is of ",
        state.worker_num(),
        " workers; with data.assignment PER_RANK_FILES the number must stay the same: give ",
        "--worker_num=", state.worker_num(), OrStartAnew(dir)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<CheckpointToResume>> FindCheckpointToResume(
    const SubmitJobRequest& request, Env* env, std::vector<std::string>* skipped,
    const std::function<bool(const Manifest&)>& wanted) {
  SLUICE_RETURN_IF_ERROR(CheckSubmission(request));
  const JobConfig& config = request.config();
  auto chosen =
      ChooseCheckpoint(CheckpointRoot(config), request.allow_older(), env, skipped, wanted);
  if (absl::IsNotFound(chosen.status())) return std::nullopt;
  if (!chosen.ok()) return chosen.status();
  CheckpointToResume found{*std::move(chosen), {}};
  SLUICE_ASSIGN_OR_RETURN(found.saved, ReadModelJob(found.checkpoint.dir, env));
  JobConfig continued = config;
  KeepUnknownValues(found.saved, &continued);
  if (const absl::Status may = CheckResume(found.saved, continued); !may.ok()) {
    return absl::Status(may.code(), absl::StrCat(may.message(), OrStartAnew(found.checkpoint.dir)));
  }
  SLUICE_RETURN_IF_ERROR(CheckResumeState(found.checkpoint.dir, found.checkpoint.manifest, config));
  return found;
}

std::string NoCheckpointToResume(const JobConfig& job) {
  return absl::StrCat("there is no checkpoint in ", CheckpointRoot(job),
                      "; the job starts from the beginning");
}

}  // namespace sluice
