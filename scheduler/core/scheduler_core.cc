#include "scheduler/core/scheduler_core.h"

#include <utility>

#include "absl/strings/str_join.h"

namespace sluice {

SchedulerCore::SchedulerCore(Options options, absl::Time now)
    : parts_(std::move(options), now),
      members_(&parts_),
      workers_(&parts_),
      operators_(&parts_, now) {}

void SchedulerCore::RestoreJob(const JobRecord& record,
                               absl::StatusOr<std::unique_ptr<const ResumePoint>> point,
                               std::optional<RunHandover> run, absl::Time now) {
  // Read first, because Restore takes the point.
  const absl::Status found = point.status();
  Job* const job = parts_.admission.Restore(record, std::move(point), std::move(run), now);
  if (!found.ok() && !parts_.lifecycle.adopted(*job))
    parts_.lifecycle.End(job, JOB_FAILED, std::string(found.message()), now);
}

std::vector<MemberEndedRequest> SchedulerCore::SilentMembers(const std::string& process_space,
                                                             absl::Time now) {
  return parts_.members.Silent(process_space, 2 * parts_.options().heartbeat, now);
}

std::string SchedulerCore::NotReady() {
  std::vector<std::string> missing = parts_.members.MissingPservers();
  for (std::string& worker : parts_.members.MissingWorkers()) missing.push_back(std::move(worker));
  return absl::StrJoin(missing, ", ");
}

bool SchedulerCore::CanEnd(absl::Time now) {
  if (!shutting_down()) return false;
  if (now >= parts_.shutdown_at() + parts_.options().all_stop) return true;
  for (const Job* job : parts_.jobs.active()) {
    if (!job->course.written()) return false;
  }
  return parts_.members.Alive(ROLE_WORKER).empty() && parts_.members.Alive(ROLE_PSERVER).empty();
}

void SchedulerCore::Tick(absl::Time now) {
  parts_.NoticePause(now);
  // After NoticePause, which looks at the time since the last tick.
  parts_.pauses.Ticked(now);
  // Before the jobs, whose Tick then sees only the members that are left.
  for (const Member* member : parts_.members.Expire(now)) parts_.MemberLost(*member, now);
  parts_.members.Forget(now);
  for (Job* job : parts_.jobs.active()) parts_.lifecycle.Tick(job, now);
  parts_.queue.MembersChanged();  // the head of the queue may have waited too long
  parts_.Schedule(now);
  parts_.StopPservers(now);
  // Last: nothing above may hold a job that is forgotten here.
  for (const std::string& job_id : parts_.jobs.Settle(parts_.members))
    parts_.effects.JobForgotten(job_id);
}

void SchedulerCore::OutputBegun(const std::string& job_id, absl::Time now) {
  if (Job* job = parts_.jobs.Find(job_id)) parts_.lifecycle.OutputBegun(job, now);
}

void SchedulerCore::OutputFailed(const std::string& job_id, const absl::Status& why,
                                 absl::Time now) {
  if (Job* job = parts_.jobs.Find(job_id)) {
    parts_.lifecycle.End(job, JOB_FAILED, std::string(why.message()), now);
  }
}

void SchedulerCore::OutputAway(const std::string& job_id, const absl::Status& why) {
  if (Job* job = parts_.jobs.Find(job_id)) parts_.lifecycle.OutputAway(job, why);
}

void SchedulerCore::OutputEnded(const std::string& job_id, const absl::Status& status) {
  if (Job* job = parts_.jobs.Find(job_id)) parts_.lifecycle.OutputEnded(job, status);
}

void SchedulerCore::CheckpointWritten(const std::string& job_id, uint64_t number,
                                      const absl::Status& status, const std::string& warning,
                                      absl::Time now) {
  Job* job = parts_.jobs.Find(job_id);
  // The output is slow, and the job may be forgotten or archived by now.
  if (job == nullptr || job->archived()) return;
  parts_.lifecycle.CheckpointWritten(job, number, status, warning, now);
}

void SchedulerCore::Warn(const std::string& job_id, const std::string& warning) {
  Job* job = parts_.jobs.Find(job_id);
  if (job == nullptr || job->archived() || !job->AddWarning(warning)) return;
  if (job->over()) job->course.WarnInResult(warning);
  if (!job->course.written()) parts_.effects.records()->Changed(*job);
  parts_.effects.StatusChanged(job);
}

}  // namespace sluice
