// Admits submitted jobs, and starts them in order when the members that they need are free.
//
// A job that the cluster can never run is refused at once. A queued job fails after `wait` if the
// members that it needs are absent (rather than busy) for that long.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/job_lifecycle.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_directory.h"
#include "scheduler/registry/job_queue.h"
#include "scheduler/registry/job_records.h"

namespace sluice {

class JobAdmission {
 public:
  struct Options {
    uint32_t worker_num = 0;  // worker slots of the cluster; 0: not stated
    absl::Duration wait = absl::Seconds(120);
    uint64_t first_version = 1;  // of a job's status
    // The numbers that an earlier scheduler would have given next.
    uint64_t next_number = 1, next_order = 1;
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
  JobAdmission(Options options, Parts parts)
      : options_(options),
        parts_(parts),
        next_number_(options.next_number),
        next_order_(options.next_order) {}

  // Makes a job that Add would queue. Its number and order are taken by Add.
  absl::StatusOr<std::unique_ptr<Job>> Prepare(const JobConfig& config,
                                               const std::vector<TableConfig>& tables,
                                               const std::string& default_output,
                                               uint64_t first_number,
                                               std::vector<std::string> warnings,
                                               std::unique_ptr<const ResumePoint> resume);
  // Queues the job.
  // REQUIRES: it is the last one prepared.
  Job* Add(std::unique_ptr<Job> job);
  // Takes over a job of an earlier scheduler. `resume`: where its next attempt begins; not OK if
  // the job cannot begin another. `handover`: the attempt that was running, which is adopted if
  // possible.
  Job* Restore(const JobRecord& record, absl::StatusOr<std::unique_ptr<const ResumePoint>> resume,
               std::optional<RunHandover> handover, absl::Time now);
  // The numbers of the next job, once `job` is added.
  NextRecord NextAfter(const Job& job) const;
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

  // Fills what follows from the job's config and the place where it continues.
  void FillSpec(const google::protobuf::RepeatedPtrField<TableConfig>& tables,
                std::unique_ptr<const ResumePoint> resume, Job* job);

  const Options options_;
  const Parts parts_;
  uint64_t next_number_, next_order_;
};

}  // namespace sluice
