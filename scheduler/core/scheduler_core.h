// Makes the scheduler's decisions: takes events and the time, and returns replies and effects.
//
// Each caller has its own interface: members(), workers() and operators(). The rest is for the
// scheduler itself: time, the output of jobs, an earlier scheduler's jobs, and what an event has
// changed. Behind all of them are the same parts (CoreParts).
//
// There is no clock, thread, socket, file or randomness inside. SchedulerLoop keeps the calls that
// wait: TakeChanged names what an event has changed, and MemberCalls::DesiredVersion,
// WorkerCalls::PhaseReady and OperatorCalls::JobVersion say cheaply whether a call can be answered.
//
// Cost: an event costs as much as it changes, whatever the number of members and jobs. Starting
// jobs looks at each member once. Tick looks at each member and at each job that has begun and is
// not settled.
//
// Thread safety: one thread (the loop locks).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/meta_store/meta_store.h"
#include "proto/scheduler.pb.h"
#include "proto/state.pb.h"
#include "scheduler/core/core_parts.h"
#include "scheduler/core/member_calls.h"
#include "scheduler/core/operator_calls.h"
#include "scheduler/core/worker_calls.h"
#include "scheduler/job/output_action.h"
#include "scheduler/job/resume_point.h"
#include "scheduler/registry/core_effects.h"
#include "scheduler/registry/job_records.h"

namespace sluice {

class SchedulerCore {
 public:
  using Options = CoreParts::Options;
  SchedulerCore(Options options, absl::Time now);

  MemberCalls& members() { return members_; }
  WorkerCalls& workers() { return workers_; }
  OperatorCalls& operators() { return operators_; }

  // Takes over a job of an earlier scheduler. Its attempt, if that scheduler was running one,
  // continues when its members register with it. Otherwise the next attempt begins at `point`
  // (null: the beginning); not OK: the job fails then. To be called in order of submission, before
  // members register.
  void RestoreJob(const JobRecord& record, absl::StatusOr<std::unique_ptr<const ResumePoint>> point,
                  std::optional<RunHandover> run, absl::Time now);
  // Deletes the records of a run that this scheduler does not take over.
  void ForgetRun(const StoredRun& run) { parts_.effects.records()->RunRefused(run); }

  // Ends leases and waits whose time is up. To be called several times a second: a gap shows that
  // the scheduler itself was stopped (PauseDetector).
  void Tick(absl::Time now);
  // A job's output: its folder is ready (kStarted), it could not be begun or continued, or it is
  // complete (kEnded). A job runs, and so can save, only when its folder is ready.
  void OutputBegun(const std::string& job_id, absl::Time now);
  void OutputFailed(const std::string& job_id, const absl::Status& why, absl::Time now);
  void OutputAway(const std::string& job_id, const absl::Status& why);
  void OutputEnded(const std::string& job_id, const absl::Status& status);
  void CheckpointWritten(const std::string& job_id, uint64_t number, const absl::Status& status,
                         const std::string& warning, absl::Time now);
  // Adds a warning to the job's status and, when it is over, to its result.
  void Warn(const std::string& job_id, const std::string& warning);
  std::vector<OutputAction> TakeActions() { return parts_.effects.TakeActions(); }
  std::vector<JobLine> TakeLines() { return parts_.effects.TakeLines(); }
  // The records that have changed since the last call. Keep them before executing the actions that
  // TakeActions returns with them.
  std::vector<MetaStore::Write> TakeRecords() { return parts_.effects.records()->Take(); }
  // Returns the keys changed since the last call. A key may occur twice.
  std::vector<WaitKey> TakeChanged() { return parts_.effects.TakeChanged(); }
  // `from_clock` leads from the times of the core's clock to the time of day.
  void SetTimeOfDay(absl::Duration from_clock) {
    parts_.effects.records()->SetTimeOfDay(from_clock);
  }
  // See CoreParts::StoreRefuses.
  void StoreRefuses(const std::string& why, absl::Time now) { parts_.StoreRefuses(why, now); }
  // True after Shutdown, when every member has left and every output is written, or time is up.
  bool CanEnd(absl::Time now);
  // Names the configured members that are not alive; "" when all are.
  std::string NotReady();
  // Living members of that process space that have been silent for two heartbeats.
  std::vector<MemberEndedRequest> SilentMembers(const std::string& process_space, absl::Time now);
  bool shutting_down() const { return parts_.shutting_down(); }

 private:
  CoreParts parts_;
  MemberCalls members_;
  WorkerCalls workers_;
  OperatorCalls operators_;
};

}  // namespace sluice
