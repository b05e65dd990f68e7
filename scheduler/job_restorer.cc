#include "scheduler/job_restorer.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "scheduler/starting_point.h"

namespace sluice {

void JobRestorer::RestoreAll(const StoredJobs& stored) {
  runs_ = stored.runs;
  for (const JobRecord& record : stored.jobs) RestoreJob(record);
  // Their jobs are not known any more.
  for (const auto& left : runs_)
    run_([&](SchedulerCore& core, absl::Time) { core.ForgetRun(left.second); });
  runs_.clear();
}

void JobRestorer::RestoreJob(JobRecord record) {
  const bool over = record.outcome() != JOB_STATE_UNSPECIFIED;
  absl::StatusOr<std::unique_ptr<const ResumePoint>> point = nullptr;
  std::optional<RunHandover> run;
  if (!over) {
    run = FindHandover(record);
    point = FindPoint(run.has_value(), &record);
  }
  job_log_(record.job_id(),
           absl::StrCat("taken over from an earlier scheduler: ",
                        over                ? "it is over, and its result is written"
                        : run.has_value()   ? "it continues when its members register again"
                        : !point.ok()       ? std::string(point.status().message())
                        : *point != nullptr ? absl::StrCat("continues from ", (*point)->dir)
                        : record.begun()    ? "begins again"
                                            : "queued"));
  run_([&](SchedulerCore& core, absl::Time now) {
    core.RestoreJob(record, std::move(point), std::move(run), now);
  });
}

absl::StatusOr<std::unique_ptr<const ResumePoint>> JobRestorer::FindPoint(bool adopted,
                                                                          JobRecord* record) const {
  std::vector<std::string> warnings;
  const auto find = [&](bool verify) {
    return FindRestartPoint(*record, verify, env_, clock_, &warnings);
  };
  // The members wait meanwhile, so that whole checkpoints are read only for a job that goes back to
  // one and may pass over damaged ones.
  auto point = find(/*verify=*/!adopted);
  if (!point.ok() && adopted && record->allow_older()) point = find(/*verify=*/true);
  for (const std::string& warning : warnings) record->add_warnings(warning);
  return point;
}

std::optional<RunHandover> JobRestorer::FindHandover(const JobRecord& record) {
  auto stored = runs_.extract(record.job_id());
  RunHandover handover;
  if (!stored.empty()) handover.run = std::move(stored.mapped());
  const absl::Status adoptable = CheckAdoptable(record, &handover);
  if (adoptable.ok()) return handover;
  if (record.begun()) {
    job_log_(record.job_id(), absl::StrCat("the run of the earlier scheduler cannot continue: ",
                                           adoptable.message()));
  }
  run_([&](SchedulerCore& core, absl::Time) { core.ForgetRun(handover.run); });
  return std::nullopt;
}

absl::Status JobRestorer::CheckAdoptable(const JobRecord& record, RunHandover* handover) const {
  if (handover->run.record.phase() == 0) {
    return absl::NotFoundError(
        "there is no complete record of it, because it lacked a member, had not begun yet, or "
        "could not be recorded");
  }
  handover->began_at = BeginningOf(handover->run);
  const Restore& restore = handover->run.record.spec().restore();
  const bool resumed = restore.kind() == Restore::RESUME && !restore.directory().empty();
  // A record that was too large for the store is not there.
  if (!resumed || handover->began_at != nullptr) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(handover->began_at,
                          ReadRestartPoint(restore.directory(), record.config(), env_, clock_));
  return absl::OkStatus();
}

}  // namespace sluice
