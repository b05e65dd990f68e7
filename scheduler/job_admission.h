// Admits submitted jobs, and starts them in order when the members that they need are free.
//
// A job that the cluster can never run is refused at once. A queued job fails after `wait` if the
// members that it needs are absent (rather than busy) for that long.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core_effects.h"
#include "scheduler/job_directory.h"
#include "scheduler/job_lifecycle.h"
#include "scheduler/job_queue.h"
#include "scheduler/membership.h"
#include "scheduler/pause_detector.h"

namespace sluice {

class JobAdmission {
 public:
  struct Options {
    uint32_t worker_num = 0;  // worker slots of the cluster; 0: not stated
    absl::Duration wait = absl::Seconds(120);
  };
  // The parts of the core that admission works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    JobQueue* queue = nullptr;
    JobDirectory* jobs = nullptr;
    JobLifecycle* lifecycle = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
  };
  JobAdmission(Options options, Parts parts) : options_(options), parts_(parts) {}

  // Like SchedulerCore::SubmitJob, but only queues the job.
  absl::StatusOr<std::string> Submit(const JobConfig& config,
                                     const std::vector<TableConfig>& tables,
                                     const std::string& default_output, uint64_t first_number,
                                     std::vector<std::string> warnings,
                                     std::unique_ptr<const ResumePoint> resume = nullptr);
  // Starts the queued jobs that can start, and records why the others wait. Does nothing unless
  // the queue is due.
  void Schedule(absl::Time now);
  // The next job gets at least this number.
  uint64_t next_number() const { return next_number_; }

 private:
  // OK when the cluster can run the job, now or later.
  absl::Status CheckWorkers(const JobConfig& config) const;
  ClusterView ViewCluster() const;
  // Records why the job stays queued; ends it when its members were absent for too long.
  void Wait(Job* job, const QueueDecision& decision, uint32_t position, absl::Time now);

  const Options options_;
  const Parts parts_;
  uint64_t next_number_ = 1;
};

}  // namespace sluice
