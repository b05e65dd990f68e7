// Makes the scheduler's decisions: takes events and the time, and returns replies and effects.
//
// The core owns the parts that decide and turns each event into calls on them: Membership (who is
// alive), JobQueue and JobAdmission (which job starts), JobLifecycle (what happens to a job until
// its end), JobDirectory (which jobs are known), ReportRequests, PauseDetector and CoreEffects.
//
// There is no clock, thread, socket, file or randomness inside. SchedulerLoop keeps the calls that
// wait: TakeChanged names what an event has changed, and DesiredVersion, PhaseReady and JobVersion
// say cheaply whether a call can be answered. A call's error goes to its caller; the status of a
// job shows what happened to the job.
//
// Cost: an event costs as much as it changes, whatever the number of members and jobs. A report
// costs as much as it contains. Starting jobs looks at each member once. Tick looks at each member
// and at each job that has begun and is not settled.
//
// Thread safety: one thread (the loop locks).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core_effects.h"
#include "scheduler/job_admission.h"
#include "scheduler/job_directory.h"
#include "scheduler/job_lifecycle.h"
#include "scheduler/job_queue.h"
#include "scheduler/job_records.h"
#include "scheduler/membership.h"
#include "scheduler/pause_detector.h"
#include "scheduler/report_requests.h"

namespace sluice {

// What became of a registration, besides the reply.
struct RegisterNotes {
  std::string replaced;      // the living member whose place the caller has taken; empty: none
  bool disbelieved = false;  // the caller was not believed that the incumbent's process has ended
  std::vector<std::string> refused_holds;  // jobs that it says to serve, without their pass
};

class SchedulerCore {
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
  SchedulerCore(Options options, absl::Time now);

  // Members. A call that names a member and lacks its secret (RegisterReply.secret) is
  // PERMISSION_DENIED and changes nothing.
  //
  // `believed`: the caller is believed when it says that the process of the living member with its
  // role and rank has ended. `notes`: may be null.
  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request, absl::Time now,
                                         bool believed = true, RegisterNotes* notes = nullptr);
  // Takes a member's report. The reply is the member's desired state, or only its version when the
  // member has seen that version.
  absl::StatusOr<PollReply> Poll(const PollRequest& request, absl::Time now);
  absl::StatusOr<PollReply> Desired(uint64_t member_id, uint64_t seen_version = 0);
  absl::StatusOr<uint64_t> DesiredVersion(uint64_t member_id);
  // OK also when the member is gone already.
  absl::Status Leave(const LeaveRequest& request, absl::Time now);
  std::optional<std::pair<Role, uint32_t>> RoleAndRankOf(uint64_t member_id) const;
  // Returns false, and does nothing, when another process is the member, or the member is already
  // gone.
  bool MemberEnded(const MemberEndedRequest& request, absl::Time now);
  // The connection over which the member's report waited for an answer has broken. Does nothing
  // when the secret is not the member's.
  void ConnectionBroke(uint64_t member_id, absl::string_view secret, absl::Time now);
  // Living members of that process space that have been silent for two heartbeats.
  std::vector<MemberEndedRequest> SilentMembers(const std::string& process_space, absl::Time now);

  // Calls of a job's workers. ABORTED: another incarnation serves the rank. CANCELLED (NextTask):
  // the job is over.
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest& request, absl::Time now);
  // True when NextPhase would return a phase or an error.
  bool PhaseReady(const NextPhaseRequest& request);
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request, absl::Time now);
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request);
  absl::Status FailJob(const FailJobRequest& request, absl::Time now);

  // Calls of operators. A job is submitted in two steps, between which its record is kept: first
  // PrepareJob and RecordsOf, then AddJob. One submission at a time.
  //
  // The config is effective and the tables are the model's; an empty output_dir becomes
  // `default_output`/<job_id>. The job's number is at least `first_number`. `warnings` become the
  // first ones of the job. The job continues from `resume`, if given.
  // RESOURCE_EXHAUSTED: JobQueue::kMaxJobs are queued.
  absl::StatusOr<std::unique_ptr<Job>> PrepareJob(
      const JobConfig& config, const std::vector<TableConfig>& tables,
      const std::string& default_output, uint64_t first_number,
      std::vector<std::string> warnings = {}, std::unique_ptr<const ResumePoint> resume = nullptr);
  std::vector<MetaStore::Write> RecordsOf(const Job& job) const;
  // FAILED_PRECONDITION: the cluster is shutting down.
  absl::StatusOr<std::string> AddJob(std::unique_ptr<Job> job, absl::Time now);
  // The job that was submitted with this request_id; "": none.
  std::string JobOfRequest(const std::string& request_id) const;
  // Takes over a job of an earlier scheduler. Its attempt, if that scheduler was running one,
  // continues when its members register with it. Otherwise the next attempt begins at `point`
  // (null: the beginning); not OK: the job fails then. To be called in order of submission, before
  // members register.
  void RestoreJob(const JobRecord& record, absl::StatusOr<std::unique_ptr<const ResumePoint>> point,
                  std::optional<RunHandover> run, absl::Time now);
  // Deletes the records of a run that this scheduler does not take over.
  void ForgetRun(const StoredRun& run) { effects_.records()->RunRefused(run); }
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest& request);
  absl::StatusOr<uint64_t> JobVersion(const std::string& job_id);
  // Asks for a checkpoint of the job (number 0) or for the outcome of an earlier request. The reply
  // is `done` once the checkpoint is over. FAILED_PRECONDITION: the job makes none now.
  absl::StatusOr<CheckpointJobReply> CheckpointJob(const std::string& job_id, uint64_t number,
                                                   absl::Time now);
  // True when the outcome of checkpoint `number` is known, or CheckpointJob returns an error.
  bool CheckpointOver(const std::string& job_id, uint64_t number);
  // With a `failure` the job ends as failed.
  absl::Status CancelJob(const std::string& job_id, absl::Time now,
                         const std::string& failure = "");
  // The job's next attempt begins with this many workers, once a checkpoint is complete. NOT_FOUND,
  // INVALID_ARGUMENT, FAILED_PRECONDITION: see AttemptPlans::Scale.
  absl::Status ScaleJob(const std::string& job_id, uint32_t worker_num, absl::Time now);
  // Marks the pserver as draining, or with `cancel` not any more. Jobs that use it leave it as soon
  // as they have made a checkpoint; the reply has those that have not. When all of them stay, it
  // says why, and an operator's next call tries again. NOT_FOUND: there is no such pserver.
  // FAILED_PRECONDITION: no other one can be used. For a call of the pserver itself (member_id),
  // ABORTED: another process has its rank; UNAVAILABLE: it is not registered.
  absl::StatusOr<DrainPserverReply> DrainPserver(const DrainPserverRequest& request,
                                                 absl::Time now);
  ClusterStatus GetStatus(absl::Time now);
  void Shutdown(absl::Time now);

  // Ends leases and waits whose time is up. To be called several times a second: a gap shows that
  // the scheduler itself was stopped (PauseDetector).
  void Tick(absl::Time now);
  // A job's output: its folder is ready (kStarted), it could not be begun or continued, or it is
  // complete (kEnded). A job runs, and so can save, only when its folder is ready.
  void OutputBegun(const std::string& job_id, absl::Time now);
  void OutputFailed(const std::string& job_id, const absl::Status& why, absl::Time now);
  void OutputEnded(const std::string& job_id, const absl::Status& status);
  void CheckpointWritten(const std::string& job_id, uint64_t number, const absl::Status& status,
                         const std::string& warning, absl::Time now);
  // Adds a warning to the job's status and, when it is over, to its result.
  void Warn(const std::string& job_id, const std::string& warning);
  std::vector<OutputAction> TakeActions() { return effects_.TakeActions(); }
  std::vector<JobLine> TakeLines() { return effects_.TakeLines(); }
  // The records that have changed since the last call. Keep them before executing the actions that
  // TakeActions returns with them.
  std::vector<MetaStore::Write> TakeRecords() { return effects_.records()->Take(); }
  // Returns the keys changed since the last call. A key may occur twice.
  std::vector<WaitKey> TakeChanged() { return effects_.TakeChanged(); }
  // True after Shutdown, when every member has left and every output is written, or time is up.
  bool CanEnd(absl::Time now);
  // Names the configured members that are not alive; "" when all are.
  std::string NotReady();
  // The next job gets at least this number.
  uint64_t next_number() const { return admission_.next_number(); }
  bool shutting_down() const { return shutdown_at_ != absl::InfiniteFuture(); }

 private:
  // OK as well for ids that no member has now.
  absl::Status CheckSecret(uint64_t member_id, absl::string_view secret) const;
  // The request without the work whose pass does not fit.
  RegisterRequest WithProvenHolds(const RegisterRequest& request, RegisterNotes* notes) const;
  // Each takes one part of a member's report.
  void TakeHosted(const Member& pserver, absl::Time now);
  void TakeTraces(const PollRequest& request, const Member& member, absl::Time now);
  void TakeFreshness(const Member& member, absl::Time now);
  void OnMemberLost(const Member& member, absl::Time now);
  // Gives all members a full lease after a pause of the scheduler itself.
  void NoticePause(absl::Time now);
  // Starts the jobs that can start.
  void Schedule(absl::Time now);

  // A job and one of its slots, found and checked for a worker's call.
  struct Rank {
    Job* job = nullptr;
    RankSlot* slot = nullptr;
  };
  // `Request`: names a job, a rank, its incarnation and its pass.
  template <typename Request>
  absl::StatusOr<Rank> FindRank(const Request& request) const;
  // NOT_FOUND says how to list the jobs.
  absl::StatusOr<Job*> FindForOperator(const std::string& job_id) const;
  // OK when the process that asks to be drained is the living member of the rank.
  absl::Status CheckDrainsItself(const DrainPserverRequest& request);
  // Keeps the marks of operators when they have changed.
  void KeepDraining();
  // After Shutdown: tells the pservers to stop when the workers have left or their time is up.
  void StopPservers(absl::Time now);

  const Options options_;
  const absl::Time started_;
  CoreEffects effects_;
  Membership members_;
  PauseDetector pauses_;
  ReportRequests requests_;
  JobDirectory jobs_;
  JobQueue queue_;
  JobLifecycle lifecycle_;
  JobAdmission admission_;
  std::string kept_draining_;  // DrainingRecord
  absl::Time shutdown_at_ = absl::InfiniteFuture();
  bool pservers_stop_ = false;
};

}  // namespace sluice
