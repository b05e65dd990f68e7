#include "cli/jobs/end_jobs.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/jobs/resume_hint.h"
#include "cli/screen/progress.h"
#include "common/base/printable.h"
#include "common/transport/retry.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(50);

bool CanSave(const JobStatus& job) {
  return job.state() == JOB_RUNNING && job.global_step() > 0 &&
         job.workers_alive() >= job.worker_num();
}

class JobEnds {
 public:
  explicit JobEnds(const EndJobsOptions& options) : o_(options) {}

  void Run() {
    const auto status = o_.client->GetStatus();
    if (!status.ok()) return;
    for (const JobStatus& job : status->jobs()) {
      if (HasEnded(job.state())) continue;
      ids_.push_back(job.job_id());
      if (CanSave(job)) saves_[job.job_id()].set_job_id(job.job_id());
    }
    if (ids_.empty()) return;
    if (o_.save_grace > absl::ZeroDuration()) Save();
    for (const std::string& id : ids_) {
      CancelJobRequest request;
      request.set_job_id(id);
      // A job that has ended meanwhile needs no cancellation, and the shutdown cancels again.
      o_.client->CancelJob(request).IgnoreError();
    }
    SayEnds();
  }

 private:
  void Save() {
    if (saves_.empty()) return;
    std::vector<std::string> ids;
    for (const auto& [id, request] : saves_) ids.push_back(id);
    o_.say(absl::StrCat("a checkpoint is saved first of ", absl::StrJoin(ids, ", "), ", for ",
                        absl::FormatDuration(o_.save_grace), " at most (--now skips this)"));
    const absl::Time until = o_.clock->Now() + o_.save_grace;
    for (;;) {
      for (auto it = saves_.begin(); it != saves_.end();) {
        it = AskFor(&it->second) ? saves_.erase(it) : std::next(it);
      }
      if (saves_.empty()) return;
      if (o_.clock->Now() >= until) break;
      o_.clock->Sleep(kPause);
    }
    for (const auto& [id, request] : saves_)
      NotSaved(id, absl::StrCat("it took longer than ", absl::FormatDuration(o_.save_grace)));
  }

  // Asks for the checkpoint of a job, or for its outcome. True when that is known.
  bool AskFor(CheckpointJobRequest* request) {
    const auto reply = o_.client->CheckpointJob(*request);
    if (!reply.ok() && GotNoAnswer(reply.status())) return false;
    if (reply.ok() && !reply->done()) {
      request->set_number(reply->number());
      return false;
    }
    const std::string failure = reply.ok() ? reply->error() : std::string(reply.status().message());
    if (!failure.empty()) NotSaved(request->job_id(), failure);
    return true;
  }

  void NotSaved(const std::string& id, const std::string& why) {
    o_.say(PrintableLine(absl::StrCat("no checkpoint of ", id, " is saved: ", why)));
  }

  // The scheduler writes the results of the jobs before it ends in any case.
  void SayEnds() {
    const absl::Time until = o_.clock->Now() + o_.end_grace;
    std::map<std::string, JobStatus> ends;
    for (;;) {
      const auto status = o_.client->GetStatus();
      if (!status.ok()) break;
      for (const JobStatus& job : status->jobs()) {
        if (HasEnded(job.state())) ends[job.job_id()] = job;
      }
      const bool all = std::all_of(ids_.begin(), ids_.end(),
                                   [&](const std::string& id) { return ends.count(id) > 0; });
      if (all || o_.clock->Now() >= until) break;
      o_.clock->Sleep(kPause);
    }
    for (const std::string& id : ids_) {
      const auto end = ends.find(id);
      o_.say(end == ends.end() ? absl::StrCat("cancelled ", id)
                               : PrintableLines(EndAndResumeHint(end->second)));
    }
  }

  const EndJobsOptions& o_;
  std::vector<std::string> ids_;
  std::map<std::string, CheckpointJobRequest> saves_;  // whose outcome is not known yet
};

}  // namespace

void EndJobs(const EndJobsOptions& options) { JobEnds(options).Run(); }

}  // namespace sluice::cli
