#include "scheduler/find_resume_point.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/resume_rules.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/manifest_files.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"

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

}  // namespace

absl::StatusOr<std::unique_ptr<const ResumePoint>> FindResumePoint(
    const SubmitJobRequest& request, Env* env, Clock* clock, std::vector<std::string>* warnings,
    const std::function<bool(const Manifest&)>& wanted) {
  SLUICE_RETURN_IF_ERROR(CheckSubmission(request));
  const JobConfig& config = request.config();
  const std::string root = CheckpointRoot(config);
  std::vector<std::string> skipped;
  auto chosen = ChooseCheckpoint(root, request.allow_older(), env, &skipped, wanted);
  for (std::string& one : skipped) warnings->push_back(std::move(one));
  if (absl::IsNotFound(chosen.status())) {
    warnings->push_back(
        absl::StrCat("there is no checkpoint in ", root, "; the job starts from the beginning"));
    return nullptr;
  }
  if (!chosen.ok()) return chosen.status();
  SLUICE_ASSIGN_OR_RETURN(const JobConfig saved, ReadModelJob(chosen->dir, env));
  SLUICE_RETURN_IF_ERROR(CheckResume(saved, config));
  auto point = std::make_unique<ResumePoint>();
  point->dir = chosen->dir;
  point->manifest = std::move(chosen->manifest);
  point->initial_checkpoint = saved.initial_checkpoint();
  point->age = clock->WallNow() - absl::UnixEpoch() - absl::Seconds(point->state().unix_time());
  SLUICE_RETURN_IF_ERROR(CheckResumePoint(*point, config));
  const Mode mode = ModeOf(config.strategy());
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

}  // namespace sluice
