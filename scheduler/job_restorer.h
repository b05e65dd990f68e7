// Gives the core the jobs that an earlier scheduler has left, each with the place where it goes on.
//
// A job whose attempt was running continues with its members, if the records of the attempt are
// complete. Otherwise its next attempt begins at a checkpoint, which is looked for in the job's
// folder. The job's log says which of these it is, and why.
//
// Thread safety: one thread. It reads files in that thread, before anyone else uses the core.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "scheduler/scheduler_core.h"

namespace sluice {

class JobRestorer {
 public:
  // A line for the log of a job.
  using JobLog = std::function<void(const std::string& job_id, const std::string& line)>;
  using Event = std::function<void(SchedulerCore& core, absl::Time now)>;
  // Runs an event on the core.
  using RunEvent = std::function<void(const Event& event)>;

  // `env` and `clock` outlive the restorer.
  JobRestorer(Env* env, Clock* clock, JobLog job_log, RunEvent run)
      : env_(env), clock_(clock), job_log_(std::move(job_log)), run_(std::move(run)) {}

  void RestoreAll(const StoredJobs& stored);

 private:
  using Runs = std::map<std::string, StoredRun>;  // by job_id

  void RestoreJob(JobRecord record);
  // Takes the job's run out of runs_, and returns it if it can be adopted.
  std::optional<RunHandover> FindHandover(const JobRecord& record);
  // OK when the run can be adopted; then its beginning is in handover->began_at.
  absl::Status CheckAdoptable(const JobRecord& record, RunHandover* handover) const;
  // The checkpoint at which the next attempt begins, if there is one. `adopted`: the run of the job
  // continues. Adds what is wrong with checkpoints to the warnings of the record.
  absl::StatusOr<std::unique_ptr<const ResumePoint>> FindPoint(bool adopted,
                                                               JobRecord* record) const;

  Env* const env_;
  Clock* const clock_;
  const JobLog job_log_;
  const RunEvent run_;
  Runs runs_;  // those whose job has not been restored yet
};

}  // namespace sluice
