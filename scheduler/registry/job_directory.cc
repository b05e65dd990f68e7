#include "scheduler/registry/job_directory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/job_config.h"
#include "common/config/output_folder.h"
#include "scheduler/registry/job_status.h"

namespace sluice {

Job* JobDirectory::Add(std::unique_ptr<Job> job) {
  Job* const added = job.get();
  by_id_[job->id()] = added;
  jobs_.push_back(std::move(job));
  return added;
}

std::vector<std::string> JobDirectory::Settle(const Membership& members) {
  const auto settled = std::stable_partition(active_.begin(), active_.end(),
                                             [](const Job* job) { return !job->settled(); });
  for (auto it = settled; it != active_.end(); ++it) {
    settled_.push_back(*it);
    if (settled_.size() > kWholeJobs)
      // One at a time, as each job settles: nobody waits for hundreds of them at once.
      ArchiveJob(settled_[settled_.size() - 1 - kWholeJobs], members);
  }
  active_.erase(settled, active_.end());
  std::vector<std::string> forgotten;
  for (; settled_.size() > kRememberedJobs; settled_.pop_front()) {
    // Copied: Forget deletes the job.
    forgotten.push_back(settled_.front()->id());
    Forget(forgotten.back());
  }
  return forgotten;
}

void JobDirectory::Forget(const std::string& job_id) {
  const auto job = by_id_.find(job_id);
  const Job* const forgotten = job->second;
  by_id_.erase(job);
  jobs_.erase(std::find_if(jobs_.begin(), jobs_.end(),
                           [forgotten](const auto& one) { return one.get() == forgotten; }));
}

Job* JobDirectory::Find(const std::string& job_id) const {
  const auto it = by_id_.find(job_id);
  return it == by_id_.end() ? nullptr : it->second;
}

std::vector<Job*> JobDirectory::ServedBy(const Member& member) const {
  std::vector<Job*> jobs;
  if (member.self.role() == ROLE_PSERVER) {
    for (Job* job : active_) {
      if (Serves(*job, member)) jobs.push_back(job);
    }
    return jobs;
  }
  Job* job = member.job_id.empty() ? nullptr : Find(member.job_id);
  if (job != nullptr && job->ranks.SlotOf(member.id) != nullptr) jobs.push_back(job);
  return jobs;
}

std::vector<Job*> JobDirectory::NeedingMember(const Member& member) const {
  std::vector<Job*> jobs = ServedBy(member);
  Job* const job =
      member.self.role() != ROLE_WORKER || member.job_id.empty() ? nullptr : Find(member.job_id);
  if (jobs.empty() && job != nullptr && job->awaits_members()) jobs.push_back(job);
  return jobs;
}

absl::Status JobDirectory::CheckOutputs(const JobConfig& config) const {
  for (const auto& job : jobs_) {
    // An ended job still writes until its state equals its outcome.
    if (job->course.written()) continue;
    if (!config.trace_file().empty() && job->config().trace_file() == config.trace_file()) {
      return absl::AlreadyExistsError(
          absl::StrCat("job ", job->id(), ", which has not ended, writes the same trace_file ",
                       config.trace_file(), "; give another --trace"));
    }
    if (job->config().output_dir() == config.output_dir()) {
      return absl::AlreadyExistsError(
          absl::StrCat("job ", job->id(), ", which has not ended, writes to the same output_dir ",
                       config.output_dir(), "; give another --output_dir"));
    }
    if (CanCheckpoint(config) && CanCheckpoint(job->config()) &&
        CheckpointRoot(job->config()) == CheckpointRoot(config)) {
      return absl::AlreadyExistsError(
          absl::StrCat("job ", job->id(), ", which has not ended, has its checkpoints in the same ",
                       "folder ", CheckpointRoot(config), "; give another checkpoint.dir"));
    }
    if (config.has_export_() && job->config().has_export_() &&
        ExportRoot(job->config()) == ExportRoot(config)) {
      return absl::AlreadyExistsError(
          absl::StrCat("job ", job->id(), ", which has not ended, has its exports in the same ",
                       "folder ", ExportRoot(config), "; give another export.dir"));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
