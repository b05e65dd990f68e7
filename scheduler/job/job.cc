#include "scheduler/job/job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"

namespace sluice {

Job::Job(Submission submission, uint64_t first_version)
    : submission_(std::move(submission)), status_version_(first_version) {}

void Job::SetRequest(std::string request_id, bool allow_older, bool resume) {
  submission_.resume = resume;
  submission_.request_id = std::move(request_id);
  submission_.allow_older = allow_older;
}

bool Job::AddWarning(std::string warning) {
  if (std::find(warnings_.begin(), warnings_.end(), warning) != warnings_.end()) return false;
  if (warnings_.size() >= kMaxWarnings) return false;
  if (warnings_.size() + 1 == kMaxWarnings) warning = "further warnings are left out";
  warnings_.push_back(std::move(warning));
  return true;
}

void Job::RaiseVersion() {
  ++status_version_;
  // The calls that this wakes see the progress as well.
  progress_untold_ = false;
}

void Job::Archive(JobStatus status) {
  archived_ = std::move(status);
  // Before the config, which the run refers to.
  attempt.Archive();
  ledger.Archive();
  deletion = RowDeletion();
  submission_.config = JobConfig();
  ranks.Archive();
  pservers.Archive();
  gathers.Clear();
  course.Archive();
}

bool Serves(const Job& job, const Member& member) {
  return member.job_id == job.id() || job.pservers.IndexOf(member.id).has_value();
}

bool IsOfLife(const Job& job, const RankSlot& slot, const WorkerProgress& progress) {
  return progress.job_id() == job.id() && progress.incarnation() == slot.incarnation();
}

const HostedJob* HostedOf(const Job& job, const Member& member) {
  const auto it = member.hosted.find(job.id());
  // Another instance has the same job_id, but its tables hold other values.
  if (it == member.hosted.end() || it->second.instance() != job.spec().instance()) return nullptr;
  return &it->second;
}

bool HasOpened(const Job& job, const Member& pserver) {
  const HostedJob* hosted = HostedOf(job, pserver);
  return hosted != nullptr && hosted->generation() == job.spec().route().generation();
}

std::string SaveIdOf(const Job& job) {
  if (!job.course.recorded_save_id().empty()) return job.course.recorded_save_id();
  const bool best = job.config().checkpoint().save() == CheckpointConfig::BEST;
  if (best && job.over()) {
    const JobResult& result = job.course.result();
    // Without a best model it has saved that of its last epoch.
    const bool of_end = result.best().save_id().empty() && !result.model_dir().empty();
    return of_end ? EpochSaveId(job.spec().instance(), result.epochs() - 1)
                  : result.best().save_id();
  }
  if (job.spec().instance() != 0) return ModelSaveId(job.spec().instance());
  // Incarnations begin with the boot number of the scheduler.
  if (job.ranks.slots().empty()) return "";
  return absl::StrCat(absl::Hex(job.ranks.slots()[0].incarnation(), absl::kZeroPad16));
}

}  // namespace sluice
