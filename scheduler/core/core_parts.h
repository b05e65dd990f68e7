// The parts of the scheduler's core that decide, and the steps that events of several callers
// share.
//
// MemberCalls, WorkerCalls, OperatorCalls and SchedulerCore turn each event into calls on these
// parts: Membership (who is alive), JobQueue and JobAdmission (which job starts), JobLifecycle
// (what happens to a job until its end), JobDirectory (which jobs are known), ReportRequests,
// PauseDetector and CoreEffects.
//
// Thread safety: one thread (the loop locks).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "proto/state.pb.h"
#include "scheduler/core/job_admission.h"
#include "scheduler/core/job_lifecycle.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_directory.h"
#include "scheduler/registry/job_queue.h"
#include "scheduler/registry/report_requests.h"

namespace sluice {

class CoreParts {
 public:
  struct Options {
    std::string cluster;                // the cluster's name
    std::vector<std::string> pservers;  // addresses by rank as the cluster file lists them, or none
    // Pservers that must be alive before a job starts; 0: the workers keep all tables.
    uint32_t pserver_num = 1;
    uint32_t worker_num = 0;  // worker slots; 0: not stated
    absl::Duration lease = absl::Seconds(10);
    absl::Duration heartbeat = absl::Seconds(1);
    // A job fails after this long if its members do not register or do not open its tables.
    absl::Duration wait = absl::Seconds(120);
    // How long the end of a job waits for fresh reports.
    absl::Duration report_wait = absl::Seconds(2);
    // After Shutdown, pservers are told to stop when the workers have left, or after `worker_stop`.
    // The scheduler ends when all members have left, or after `all_stop`.
    absl::Duration worker_stop = absl::Seconds(3);
    absl::Duration all_stop = absl::Seconds(5);
    // The first member id, incarnation and instance of a job. Random, so that a restarted scheduler
    // does not recognize the numbers of its earlier life.
    uint64_t first_id = 1;
    // The versions of a job's status begin here. A caller that follows a job through a restart of
    // the scheduler sees them grow.
    uint64_t first_version = 1;
    // The cluster key of passes and secrets (common/security/job_passes.h). With an empty one no
    // member is served.
    std::string pass_key;
    std::string clock;  // names the clock of `now`: another core with the same name continues it
    NextRecord next;    // what an earlier scheduler would have given next; absent: there was none
    DrainingRecord draining;  // of an earlier scheduler
    // Fills num_shards and route of a job that is about to start. Pure.
    std::function<absl::Status(const std::vector<std::string>& pservers, JobSpec* spec)> place;
  };
  CoreParts(Options options, absl::Time now);
  CoreParts(const CoreParts&) = delete;
  CoreParts& operator=(const CoreParts&) = delete;

  const Options& options() const { return options_; }

  // OK as well for ids that no member has now.
  absl::Status CheckSecret(uint64_t member_id, absl::string_view secret) const;
  // Handles the loss of a member. Call Schedule afterwards. While the state store takes no records,
  // the jobs that have not ended learn of it later.
  void MemberLost(const Member& member, absl::Time now);
  // The state store takes no records from now on, or takes them again (""). See
  // JobRecords::refused.
  void StoreRefuses(const std::string& why, absl::Time now);
  // Starts the jobs that can start. Call after every event that may have changed members or jobs.
  void Schedule(absl::Time now);
  // Keeps the marks of operators when they have changed.
  void KeepDraining();
  // Gives all members a full lease after a pause of the scheduler itself.
  void NoticePause(absl::Time now);

  // InfiniteFuture: no shutdown has begun.
  absl::Time shutdown_at() const { return shutdown_at_; }
  bool shutting_down() const { return shutdown_at_ != absl::InfiniteFuture(); }
  // True once the pservers must stop as well.
  bool pservers_stop() const { return pservers_stop_; }
  // Cancels all jobs, and tells the workers to stop.
  void Shutdown(absl::Time now);
  // After Shutdown: tells the pservers to stop when the workers have left or their time is up.
  void StopPservers(absl::Time now);

 private:
  const Options options_;

 public:
  CoreEffects effects;
  Membership members;
  PauseDetector pauses;
  ReportRequests requests;
  JobDirectory jobs;
  JobQueue queue;
  JobLifecycle lifecycle;
  JobAdmission admission;

 private:
  std::string kept_draining_;  // DrainingRecord
  std::vector<Member> untold_losses_;  // of which jobs learn when the store takes records again
  absl::Time shutdown_at_ = absl::InfiniteFuture();
  bool pservers_stop_ = false;
};

}  // namespace sluice
