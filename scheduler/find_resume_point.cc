#include "scheduler/find_resume_point.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/resume_rules.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<const ResumePoint>> FindResumePoint(
    const SubmitJobRequest& request, Env* env, Clock* clock, std::vector<std::string>* warnings) {
  SLUICE_RETURN_IF_ERROR(CheckSubmission(request));
  const JobConfig& config = request.config();
  const std::string root = CheckpointRoot(config);
  std::vector<std::string> skipped;
  auto chosen = ChooseCheckpoint(root, request.allow_older(), env, &skipped);
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
  point->age = clock->WallNow() - absl::UnixEpoch() - absl::Seconds(point->state().unix_time());
  SLUICE_RETURN_IF_ERROR(CheckResumePoint(*point, config));
  return point;
}

}  // namespace sluice
