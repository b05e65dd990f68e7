// The scheduler's decisions: events and the time in, replies and actions out.
//
// No clock, thread, socket, file or randomness inside. Calls that wait are the loop's matter:
// TakeChanged names what an event has changed, and DesiredVersion, PhaseReady and JobVersion say
// cheaply whether a call has its answer. Errors of a call are for its caller; what happens to jobs
// is seen in their status.
//
// Cost: an event costs what it changes, whatever the number of members and jobs. A report costs
// what it says, the start of jobs a look at the members, Tick a look at the members and at the jobs
// that have begun and are not settled.
//
// Invariants: a worker serves at most one job; a job runs on all pservers of the cluster; an ended
// job changes no more but for its state, which follows when its output is written. Memory: at most
// kMaxQueuedJobs wait; of the settled jobs the newest kWholeJobs are kept whole, the newest
// kRememberedJobs as their status. Thread safety: one thread (the loop locks).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job.h"
#include "scheduler/membership.h"
#include "scheduler/trace_report.h"
#include "scheduler/wait_key.h"

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
  TraceReport trace;    // kTrace
  JobResult result;     // kEnded
  std::string save_id;  // kEnded: Phase.save_id of the job, "" when it never started
};

class SchedulerCore {
 public:
  static constexpr size_t kMaxQueuedJobs = 1000;
  static constexpr size_t kWholeJobs = 8;
  static constexpr size_t kRememberedJobs = 100;

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
  // Takes in the report; the reply is the desired state as it is now: no more than its version when
  // that is the seen one.
  absl::StatusOr<PollReply> Poll(const PollRequest& request, absl::Time now);
  absl::StatusOr<PollReply> Desired(uint64_t member_id, uint64_t seen_version = 0);
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
  // kMaxQueuedJobs are queued. `warnings` become the first ones of the job.
  absl::StatusOr<std::string> SubmitJob(const JobConfig& config,
                                        const std::vector<TableConfig>& tables,
                                        const std::string& default_output, uint64_t first_number,
                                        absl::Time now, std::vector<std::string> warnings = {});
  absl::StatusOr<JobStatus> GetJob(const std::string& job_id);
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest& request);
  absl::StatusOr<uint64_t> JobVersion(const std::string& job_id);
  absl::Status CancelJob(const std::string& job_id, absl::Time now);
  ClusterStatus GetStatus(absl::Time now);
  void Shutdown(absl::Time now);

  // Time passes: leases run out, waiting has its bounds. To be called several times a second; after
  // a gap the scheduler itself was stopped, and judges nobody by the time before.
  void Tick(absl::Time now);
  // The output of a job: its folder is ready (kStarted), before which the job does not run and so
  // cannot save; it could not be begun or gone on with; or it is complete (kEnded).
  void OutputBegun(const std::string& job_id, absl::Time now);
  void OutputFailed(const std::string& job_id, const absl::Status& why, absl::Time now);
  void OutputEnded(const std::string& job_id, const absl::Status& status);
  std::vector<OutputAction> TakeActions();
  // What has changed since the last call. A key may be named twice.
  std::vector<WaitKey> TakeChanged();
  // After Shutdown: every member has left or had its time, and every output is written.
  bool CanEnd(absl::Time now);
  // Members of the configured cluster that are not there, "" when all are.
  std::string NotReady();
  // The next job has at least this number.
  uint64_t next_number() const { return next_number_; }
  bool shutting_down() const { return shutdown_at_ != absl::InfiniteFuture(); }

 private:
  // The one place that decides what becomes of jobs when a member is gone: today they fail.
  void OnMemberLost(const Member& member, absl::Time now);

  Job* Find(const std::string& job_id);
  // The job and its rank's slot, after the checks of a worker's call.
  template <class Request>
  absl::StatusOr<RankSlot*> FindRank(const Request& request, Job** job);
  void Touch(Member* member);
  // The job's status, or its phase, has changed.
  void NoteStatus(Job* job);
  void NotePhase(const Job& job) { changed_.push_back(WaitKey::Phase(job.job_id)); }
  // Jobs that `member` serves and that are not settled.
  std::vector<Job*> ServedBy(const Member& member);
  void TouchPservers(const Job& job);
  void TakeHosted(Member* member, absl::Time now);
  void TakeProgress(const PollRequest& request, Member* member, absl::Time now);
  void TakeLosses(const WorkerProgress& progress, Job* job, RankSlot* slot, absl::Time now);
  // The member's report is fresh enough for jobs that asked for it.
  void TakeFreshness(const Member& member, absl::Time now);
  void TakeTraces(const PollRequest& request, const Member& member, absl::Time now);
  // The report of a rank's member did not name the job: has it given up?
  void CheckServing(Job* job, const Member& member, RankSlot* slot, absl::Time now);
  void AskForReports(Job* job);

  // Life of a job (job_lifecycle.cc).
  absl::Status CheckWorkers(const JobConfig& config);
  void Schedule(absl::Time now);
  // Decides on the head of the queue, or on all of it when it has changed.
  void DecideJobs(absl::Time now);
  // False when the job is not in the queue.
  bool Unqueue(Job* job);
  // The members that it needs have not been there for too long.
  bool WaitsTooLong(const Job* job, absl::Time now) const;
  std::vector<std::string> MissingPservers();
  bool IsFree(const Member& worker) const;
  void StartJob(Job* job, absl::Time now);
  void RunJob(Job* job, absl::Time now);
  void CheckStarting(Job* job, absl::Time now);
  // When the pserver, which has not opened the job's tables, last read more of its initial model.
  absl::Time LoadingSince(Job* job, const Member& pserver, absl::Time now);
  void CheckFinishing(Job* job, absl::Time now);
  void EndJob(Job* job, JobState outcome, const std::string& message, absl::Time now);
  void Withdraw(RankSlot* slot);
  // Takes the tables from the pservers when no rank serves any more.
  void DropWhenReleased(Job* job, absl::Time now);
  void Release(Job* job, RankSlot* slot);
  // Takes settled jobs from active_, and archives and forgets old ones.
  void Settle();
  void Forget(const std::string& job_id);
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
  absl::flat_hash_map<std::string, Job*> by_id_;
  // Each job is in one of these: queued; started or ended; settled, in the order of settling.
  std::deque<Job*> queue_;
  std::vector<Job*> active_;
  std::deque<Job*> settled_;
  // By member id: jobs that have asked it for a fresh report.
  absl::flat_hash_map<uint64_t, std::vector<std::string>> asked_by_;
  // What decides on the queue has changed: members, free workers or the queue itself.
  bool schedule_due_ = false;
  bool queue_changed_ = false;
  uint64_t next_number_ = 1;
  uint64_t next_incarnation_ = options_.first_id;
  uint64_t next_instance_ = options_.first_id;
  absl::Time ticked_at_ = started_;
  absl::Time resumed_at_ = absl::InfinitePast();  // after it did not run for a while
  absl::Time shutdown_at_ = absl::InfiniteFuture();
  bool pservers_stop_ = false;
  std::vector<OutputAction> actions_;
  std::vector<WaitKey> changed_;
};

}  // namespace sluice
