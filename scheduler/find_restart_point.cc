#include "scheduler/find_restart_point.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "scheduler/find_resume_point.h"

namespace sluice {
absl::StatusOr<std::unique_ptr<const ResumePoint>> ReadRestartPoint(const std::string& dir,
                                                                    const JobConfig& config,
                                                                    Env* env, Clock* clock) {
  SLUICE_ASSIGN_OR_RETURN(CheckpointInfo found,
                          FindCheckpoint(dir, /*verify=*/false, env, nullptr));
  auto point = std::make_unique<ResumePoint>();
  point->dir = found.dir;
  point->manifest = std::move(found.manifest);
  point->initial_checkpoint = config.initial_checkpoint();
  point->age = clock->WallNow() - absl::UnixEpoch() - absl::Seconds(point->state().unix_time());
  SLUICE_RETURN_IF_ERROR(CheckResumePoint(*point, config));
  return point;
}

bool IsOfInstances(const Manifest& manifest,
                   const google::protobuf::RepeatedField<uint64_t>& instances) {
  // The names of a save's files contain its id, which follows from the instance and a number.
  constexpr uint64_t kMostCheckpoints = 1 << 18;
  const auto job_file =
      std::find_if(manifest.files().begin(), manifest.files().end(), [](const SavedFile& file) {
        return absl::StartsWith(file.name(), "job.") && absl::EndsWith(file.name(), ".textproto");
      });
  if (job_file == manifest.files().end()) return false;
  for (uint64_t number = 1; number <= kMostCheckpoints; ++number) {
    for (const uint64_t instance : instances) {
      if (absl::StrContains(job_file->name(), CheckpointSaveId(instance, number))) return true;
    }
  }
  return false;
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
      return IsOfInstances(manifest, record.instances());
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
  return ReadRestartPoint(record.resume_from(), record.config(), env, clock);
}

}  // namespace sluice
