// The scheduler's decisions: events and the time in, replies and actions out.
//
// No clock, thread, socket, file or randomness inside. Calls that wait are the service's matter: it
// asks again when something may have changed (DesiredVersion, PhaseReady, JobVersion say cheaply
// whether it has). Errors of a call are for its caller; what happens to jobs is seen in their
// status.
//
// Invariants: a worker serves at most one job; a job runs on all pservers of the cluster; an ended
// job changes no more but for its state, which follows when its output is written. Memory: at most
// kMaxQueuedJobs wait. Thread safety: one thread (the service locks).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job.h"
#include "scheduler/membership.h"
#include "scheduler/trace_report.h"

namespace sluice {

// What is to be written for a job, in this order: one kStarted (unless it never started), points
// and spans, one kEnded.
struct OutputAction {
  enum Kind { kStarted, kScalars, kTrace, kEnded };
  Kind kind = kStarted;
  std::string job_id;
  absl::Time time;   // the core's; SchedulerLoop makes it the time of day
  JobConfig config;  // kStarted, kEnded
  std::vector<Scalar> scalars;
  TraceReport trace;  // kTrace
  JobResult result;   // kEnded
};

class SchedulerCore {
 public:
  static constexpr size_t kMaxQueuedJobs = 1000;

  struct Options {
    std::string cluster;                // its name
    std::vector<std::string> pservers;  // addresses as the cluster file lists them; may be empty
    uint32_t pserver_num = 1;           // that must be there before a job starts
    uint32_t worker_num = 0;            // worker slots; 0: not stated
    absl::Duration lease = absl::Seconds(10);
    absl::Duration heartbeat = absl::Seconds(1);
    // A job whose members do not come, or do not open its tables, fails after so long.
    absl::Duration wait = absl::Seconds(120);
    // How long the end of a job waits for fresh reports.
    absl::Duration report_wait = absl::Seconds(2);
    // After Shutdown: pservers are told to stop when the workers have left, or after `worker_stop`;
    // the scheduler ends when all have left, or after `all_stop`.
    absl::Duration worker_stop = absl::Seconds(3);
    absl::Duration all_stop = absl::Seconds(5);
    // The first member id, incarnation and instance of a job. Random, so that no number of another
    // life of this scheduler is known here.
    uint64_t first_id = 1;
    // Fills num_shards and route of a job that is about to start. Pure.
    std::function<absl::Status(const std::vector<std::string>& pservers, JobSpec* spec)> place;
  };
  SchedulerCore(Options options, absl::Time now);

  // Members.
  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request, absl::Time now);
  // Takes in the report; the reply is the desired state as it is now.
  absl::StatusOr<PollReply> Poll(const PollRequest& request, absl::Time now);
  absl::StatusOr<PollReply> Desired(uint64_t member_id);
  absl::StatusOr<uint64_t> DesiredVersion(uint64_t member_id);
  void Leave(const LeaveRequest& request, absl::Time now);
  // Nothing when the member is another process or gone already.
  void MemberEnded(const MemberEndedRequest& request, absl::Time now);
  // Living members of that process space that have been silent for some heartbeats.
  std::vector<MemberEndedRequest> SilentMembers(const std::string& process_space, absl::Time now);

  // Workers of a job. ABORTED: the incarnation is not the rank's. CANCELLED: the job is over
  // (NextTask).
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest& request, absl::Time now);
  // Asking again would give a phase or an error.
  bool PhaseReady(const NextPhaseRequest& request);
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request);
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request);
  absl::Status FailJob(const FailJobRequest& request, absl::Time now);

  // Operators. The config is effective and the tables are the model's; an empty output_dir becomes
  // `default_output`/<job_id>. The job's number is at least `first_number`. RESOURCE_EXHAUSTED:
  // kMaxQueuedJobs are queued.
  absl::StatusOr<std::string> SubmitJob(const JobConfig& config,
                                        const std::vector<TableConfig>& tables,
                                        const std::string& default_output, uint64_t first_number,
                                        absl::Time now);
  absl::StatusOr<JobStatus> GetJob(const std::string& job_id);
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest& request);
  absl::StatusOr<uint64_t> JobVersion(const std::string& job_id);
  absl::Status CancelJob(const std::string& job_id, absl::Time now);
  ClusterStatus GetStatus(absl::Time now);
  void Shutdown(absl::Time now);

  // Time passes: leases run out, waiting has its bounds. To be called several times a second; after
  // a gap the scheduler itself was stopped, and judges nobody by the time before.
  void Tick(absl::Time now);
  // The output of a job: it could not be begun or gone on with, or it is complete (kEnded).
  void OutputFailed(const std::string& job_id, const absl::Status& why, absl::Time now);
  void OutputEnded(const std::string& job_id, const absl::Status& status);
  std::vector<OutputAction> TakeActions();
  // After Shutdown: every member has left or had its time, and every output is written.
  bool CanEnd(absl::Time now);
  // Members of the configured cluster that are not there, "" when all are.
  std::string NotReady();
  bool shutting_down() const { return shutdown_at_ != absl::InfiniteFuture(); }

 private:
  // The one place that decides what becomes of jobs when a member is gone: today they fail.
  void OnMemberLost(const Member& member, absl::Time now);

  Job* Find(const std::string& job_id);
  // The job and its rank's slot, after the checks of a worker's call.
  template <class Request>
  absl::StatusOr<RankSlot*> FindRank(const Request& request, Job** job);
  void Touch(Member* member) { ++member->version; }
  void TouchPservers(const Job& job);
  void TakeHosted(Member* member, absl::Time now);
  void TakeProgress(const PollRequest& request, Member* member, absl::Time now);
  void TakeTraces(const PollRequest& request, const Member& member, absl::Time now);
  // The report of a rank's member did not name the job: has it given up?
  void CheckServing(Job* job, const Member& member, RankSlot* slot, absl::Time now);
  void AskForReports(Job* job);
  bool ReportsAreFresh(const Job& job);

  // Life of a job (job_lifecycle.cc).
  absl::Status CheckWorkers(const JobConfig& config);
  void Schedule(absl::Time now);
  bool WaitsTooLong(Job* job, bool absent, absl::Time now) const;
  std::vector<std::string> MissingPservers();
  bool IsFree(const Member& worker) const;
  void StartJob(Job* job, absl::Time now);
  void RunJob(Job* job, absl::Time now);
  void CheckStarting(Job* job, absl::Time now);
  void CheckFinishing(Job* job, absl::Time now);
  void EndJob(Job* job, JobState outcome, const std::string& message, absl::Time now);
  void Withdraw(RankSlot* slot);
  // Takes the tables from the pservers when no rank serves any more.
  void DropWhenReleased(Job* job, absl::Time now);
  void Release(Job* job, RankSlot* slot);
  void Forget();
  void StopMembers(absl::Time now);
  // Whether the scheduler itself was stopped since the last tick.
  void NoticePause(absl::Time now);
  // How long something lasts, not counting from before a pause of the scheduler itself.
  absl::Duration Since(absl::Time begin, absl::Time now) const {
    return now - std::max(begin, resumed_at_);
  }
  void Emit(const Job& job, OutputAction::Kind kind, std::vector<Scalar> scalars, absl::Time now);

  const Options options_;
  const absl::Time started_;
  Membership members_;
  // In order of submission. Pointers stay valid until Forget.
  std::vector<std::unique_ptr<Job>> jobs_;
  uint64_t next_number_ = 1;
  uint64_t next_incarnation_ = options_.first_id;
  uint64_t next_instance_ = options_.first_id;
  absl::Time ticked_at_ = started_;
  absl::Time resumed_at_ = absl::InfinitePast();  // after it did not run for a while
  absl::Time shutdown_at_ = absl::InfiniteFuture();
  bool pservers_stop_ = false;
  std::vector<OutputAction> actions_;
};

}  // namespace sluice
