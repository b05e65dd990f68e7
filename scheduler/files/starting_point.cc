#include "scheduler/files/starting_point.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/config/output_folder.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"
#include "model/built_in_models.h"
#include "model/resume_match.h"

namespace sluice {
namespace {

// Examples of frames that some shards hold and others lack. The ranks train them again.
absl::StatusOr<uint64_t> ExamplesReplayed(const std::string& dir, const Manifest& manifest,
                                          Env* env) {
  const CheckpointState& state = manifest.checkpoint();
  std::vector<uint64_t> most(state.workers_size());
  for (const TableConfig& table : manifest.tables()) {
    SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(dir, manifest, table));
    for (const SavedFile* file : files) {
      SLUICE_ASSIGN_OR_RETURN(const auto reader, ShardFileReader::Open(env, dir, table, *file));
      const ShardFacts& facts = reader->header().facts();
      for (int rank = 0; rank < std::min(facts.ranks_size(), state.workers_size()); ++rank) {
        const RankPosition& held = facts.ranks(rank);
        // Frames of earlier epochs are on all shards.
        if (held.sequence() == 0 || held.epoch() != state.epoch()) continue;
        most[rank] = std::max<uint64_t>(most[rank], held.totals().examples());
      }
    }
  }
  uint64_t replayed = 0;
  for (int rank = 0; rank < state.workers_size(); ++rank) {
    const uint64_t continued = state.workers(rank).train().examples();
    replayed += most[rank] - std::min(most[rank], continued);
  }
  return replayed;
}

// The time since the cut. A checkpoint that bears a time ahead of this clock counts as made now.
absl::Duration AgeOf(const ResumePoint& point, Clock* clock, std::vector<std::string>* warnings) {
  const absl::Time made = absl::UnixEpoch() + absl::Seconds(point.state().unix_time());
  const absl::Duration age = clock->WallNow() - made;
  // Clocks of hosts that keep time differ by less.
  constexpr absl::Duration kDifference = absl::Seconds(10);
  if (warnings != nullptr && age < -kDifference) {
    warnings->push_back(absl::StrCat(
        "the checkpoint in ", point.dir, " was made at ",
        absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", made, absl::UTCTimeZone()),
        ", which is ahead of the clock of this scheduler's host; check the clocks of the hosts. It "
        "counts as made now"));
  }
  return std::max(age, absl::ZeroDuration());
}

// The point at which `job` continues from a checkpoint. `warnings` may be null.
// Errors: see CheckResumeState.
absl::StatusOr<std::unique_ptr<ResumePoint>> PointAt(CheckpointInfo found,
                                                     const std::string& initial_checkpoint,
                                                     const JobConfig& job, Clock* clock,
                                                     std::vector<std::string>* warnings) {
  auto point = std::make_unique<ResumePoint>();
  point->dir = std::move(found.dir);
  point->damaged = std::move(found.damaged);
  point->manifest = std::move(found.manifest);
  point->initial_checkpoint = initial_checkpoint;
  point->age = AgeOf(*point, clock, warnings);
  SLUICE_RETURN_IF_ERROR(CheckResumeState(point->dir, point->manifest, job));
  return point;
}

// Forgets a best model that the checkpoint names and that is gone.
void CheckBestModel(const JobConfig& config, Env* env, ResumePoint* point,
                    std::vector<std::string>* warnings) {
  JobResult* const result = point->manifest.mutable_checkpoint()->mutable_result();
  const BestEpoch& best = result->best();
  if (config.checkpoint().save() != CheckpointConfig::BEST || best.save_id().empty()) return;
  const std::string model = ModelFolder(config);
  const absl::Status saved = CheckSaved(model, best.save_id(), env);
  if (saved.ok()) return;
  warnings->push_back(absl::StrCat("the model of epoch ", best.epoch(),
                                   ", the best one before the checkpoint, cannot be used (",
                                   saved.message(), "); the best one is chosen among the epochs ",
                                   "from ", point->state().epoch() + 1, " on"));
  result->clear_best();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const ResumePoint>> FindResumePoint(
    const SubmitJobRequest& request, Env* env, Clock* clock, std::vector<std::string>* warnings,
    const std::function<bool(const Manifest&)>& wanted) {
  const JobConfig& config = request.config();
  SLUICE_ASSIGN_OR_RETURN(std::optional<CheckpointToResume> found,
                          FindCheckpointToResume(request, env, warnings, wanted));
  if (!found) {
    warnings->push_back(NoCheckpointToResume(config));
    return nullptr;
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ResumePoint> point,
                          PointAt(std::move(found->checkpoint), found->saved.initial_checkpoint(),
                                  config, clock, warnings));
  CheckBestModel(config, env, point.get(), warnings);
  const Mode mode = ModeOf(config.strategy());
  // All shards of a sync checkpoint are at one step, so nothing is repeated.
  if (mode == Mode::kSync) return point;
  SLUICE_ASSIGN_OR_RETURN(point->examples_replayed,
                          ExamplesReplayed(point->dir, point->manifest, env));
  if (mode == Mode::kGeo && config.worker_num() != point->state().worker_num()) {
    warnings->push_back(
        absl::StrCat("the checkpoint in ", point->dir, " is of ", point->state().worker_num(),
                     " workers, and the job has ", config.worker_num(),
                     ": in Geo, optimizer state belongs to the workers, so it starts at zero"));
  }
  return point;
}

absl::StatusOr<std::unique_ptr<const ResumePoint>> ReadResumePoint(const std::string& dir,
                                                                   const JobConfig& config,
                                                                   Env* env, Clock* clock) {
  SLUICE_ASSIGN_OR_RETURN(CheckpointInfo found,
                          FindCheckpoint(dir, /*verify=*/false, env, nullptr));
  return PointAt(std::move(found), config.initial_checkpoint(), config, clock,
                 /*warnings=*/nullptr);
}

absl::StatusOr<std::unique_ptr<const ResumePoint>> FindRestartPoint(
    const JobRecord& record, bool verify, Env* env, Clock* clock,
    std::vector<std::string>* warnings) {
  if (record.begun() && CanCheckpoint(record.config()) && !record.config().evaluate_only()) {
    SubmitJobRequest request;
    *request.mutable_config() = record.config();
    // Geo warns of another number of workers than that of the checkpoint.
    if (record.worker_num() > 0) request.mutable_config()->set_worker_num(record.worker_num());
    request.set_resume(true);
    request.set_allow_older(record.allow_older() && verify);
    // The folder may also hold checkpoints of an earlier job, or of an attempt whose record could
    // not be kept.
    const auto own = [&](const Manifest& manifest) {
      return IsOfInstances(manifest, {record.instances().begin(), record.instances().end()});
    };
    std::vector<std::string> skipped;
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<const ResumePoint> point,
                            FindResumePoint(request, env, clock, &skipped, own));
    if (point != nullptr) {
      warnings->insert(warnings->end(), skipped.begin(), skipped.end());
      return point;
    }
  }
  if (record.resume_from().empty()) return nullptr;
  SLUICE_ASSIGN_OR_RETURN(CheckpointInfo found,
                          FindCheckpoint(record.resume_from(), /*verify=*/false, env, nullptr));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ResumePoint> point,
                          PointAt(std::move(found), record.config().initial_checkpoint(),
                                  record.config(), clock, /*warnings=*/nullptr));
  CheckBestModel(record.config(), env, point.get(), warnings);
  return point;
}

absl::StatusOr<StartCheck> FindInitialCheckpoint(Env* env, JobConfig* config) {
  if (config->initial_checkpoint().empty()) return StartCheck();
  std::vector<std::string> skipped;
  const auto found = FindCheckpoint(config->initial_checkpoint(), /*verify=*/true, env, &skipped);
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat("initial_checkpoint: ", found.status().message()));
  }
  config->set_initial_checkpoint(found->dir);
  SLUICE_ASSIGN_OR_RETURN(const JobConfig saved, ReadModelJob(found->dir, env));
  KeepUnknownValues(saved, config);
  SLUICE_ASSIGN_OR_RETURN(StartCheck check, CheckInitialCheckpoint(*config, BuiltInSpecs(), env));
  for (std::string& one : skipped) {
    one =
        absl::StrCat("initial_checkpoint: ", one, "; the job starts from ", found->dir, " instead");
  }
  check.warnings.insert(check.warnings.begin(), skipped.begin(), skipped.end());
  return check;
}

}  // namespace sluice
