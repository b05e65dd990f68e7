// Runs the core for several threads: locks it, gives it the time, and keeps the calls that wait.
//
// A call is answered through its `done`, at once or later, on any thread and never under the lock.
// Its request must live until then. An event answers the calls that wait for what it has changed,
// and those whose deadline has passed. A timer looks for passed deadlines ten times a second.
//
// The records that an event changes are committed before the files that it causes are written, and
// before the answer to a submission, a cancellation or a worker's call leaves (StateKeeper). While
// the store cannot be written, submissions are refused and everything else continues; the status
// says so.
//
// Thread safety: safe.
//
// Lock order: submit_mutex_, then mutex_, then the locks of StateKeeper and JobOutput.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "scheduler/caller_log.h"
#include "scheduler/job_output.h"
#include "scheduler/job_spec_builder.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/state_keeper.h"
#include "scheduler/waiting_calls.h"

namespace sluice {

template <class Reply>
using Done = std::function<void(absl::StatusOr<Reply>)>;

class SchedulerLoop {
 public:
  struct Options {
    SchedulerCore::Options core;
    Clock* clock = nullptr;  // outlives the loop
    Env* env = nullptr;      // outlives the loop
    std::string host;
    // The processes of silent members in this process space are checked, so that a member whose
    // process has ended is lost before its lease runs out. Empty: no checks.
    std::string process_space;
    std::function<bool(uint32_t pid)> process_has_ended;  // in process_space
    std::string default_output;  // parent of the output folders of jobs that name none
    std::function<void(const std::string&)> log;
    std::function<void(const std::string& job_id, const std::string& line)> job_log;
    // Where the records are kept, under a term that was acquired from it; null: nowhere. Outlives
    // the loop. `stored`: what it holds from an earlier scheduler.
    MetaStore* store = nullptr;
    uint64_t term = 0;
    StoredJobs stored;
    // When the store has not confirmed the term for this long, another scheduler may have taken
    // over (StateKeeper). Zero: no other one can open the store.
    absl::Duration cut_off = absl::ZeroDuration();
    // Called once, when a newer scheduler has the store (ABORTED), or may have it (UNAVAILABLE):
    // this one must end without a shutdown of the cluster. It answers no more calls that change a
    // job. May be null.
    std::function<void(const absl::Status&)> on_superseded;
    // Called once after a shutdown, on a thread of the loop, when SchedulerCore::CanEnd.
    std::function<void()> on_end;
  };
  explicit SchedulerLoop(Options options);
  // Answers the calls that wait. No further call may be made.
  ~SchedulerLoop();

  // Members' requests that break a bound are INVALID_ARGUMENT (request_text.h), and their text is
  // made printable. `believed`, `notes`: see SchedulerCore::Register. `caller`, of calls that may
  // wait: whom they are counted for. See WaitingCalls.
  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request, bool believed = true,
                                         RegisterNotes* notes = nullptr);
  void Poll(const PollRequest* request, Done<PollReply> done, const std::string& caller = "");
  absl::Status Leave(const LeaveRequest& request);
  // The role and the rank under which the member has registered; nothing when there is no such
  // member.
  std::optional<std::pair<Role, uint32_t>> RoleAndRankOf(uint64_t member_id);
  // NOT_FOUND: another process is the member, or the member is already gone.
  absl::Status MemberEnded(const MemberEndedRequest& request);
  // The connection over which the member's Poll waited has broken.
  void ConnectionBroke(uint64_t member_id, const std::string& secret);
  void NextPhase(const NextPhaseRequest* asked, Done<NextPhaseReply> done,
                 const std::string& caller = "");
  void NextTask(const NextTaskRequest& request, Done<NextTaskReply> done);
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request);
  // These and the following calls return UNAVAILABLE when a newer scheduler has taken over.
  absl::Status FailJob(const FailJobRequest& request);
  // Reads the job's files and folders in the calling thread, and holds up no other call meanwhile.
  // A repeated call with the same request_id returns the job of the first one; "": a new job.
  // FAILED_PRECONDITION: the job's record cannot be kept, so it will not run. UNAVAILABLE: it is
  // not known whether the record is kept; repeat the call.
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest& request,
                                           const std::string& request_id = "");
  void WatchJob(const WatchJobRequest* request, Done<WatchJobReply> done,
                const std::string& caller = "");
  void CheckpointJob(const CheckpointJobRequest* request, Done<CheckpointJobReply> done,
                     const std::string& caller = "");
  absl::Status CancelJob(const CancelJobRequest& request);
  absl::Status ScaleJob(const ScaleJobRequest& request);
  absl::StatusOr<DrainPserverReply> DrainPserver(const DrainPserverRequest& request);
  ClusterStatus GetStatus();
  absl::Status Shutdown();
  bool ShuttingDown();
  // REQUIRES: Shutdown was called. Returns when the shutdown is complete. on_end may still be
  // running.
  void WaitEnd();
  // Answers all waiting calls now, and later ones at once, as if their deadlines had passed.
  void StopWaiting();
  std::string NotReady();

 private:
  using Answer = WaitingCalls::Answer;
  using Event = std::function<void(SchedulerCore& core, absl::Time now)>;
  // *wait_ms > 0: the caller waits for at most this long.
  using WaitingEvent = std::function<void(SchedulerCore& core, absl::Time now, uint32_t* wait_ms)>;

  // Runs `event` on the core under the lock, then what follows from it.
  void Run(const Event& event);
  // The line about calls of `caller` that were answered early. "": there is none now.
  std::string CrowdedOut(const std::string& caller) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Like Run. True when the caller waits; then `call`, whose deadline is set here, will answer it.
  bool RunOrWait(const WaitingEvent& event, WaitingCalls::Call call);
  std::vector<Answer> Settle(absl::Time now, bool all) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes over the jobs of an earlier scheduler.
  void RestoreJobs();
  // Takes the job's run out of `runs`, and returns it if it can be adopted.
  std::optional<RunHandover> FindHandover(const JobRecord& record,
                                          std::map<std::string, StoredRun>* runs);
  // Answers when what has been decided until now is kept, or cannot be kept at present. With
  // `confirm` the scheduler's term is confirmed first.
  template <typename Reply>
  void AnswerWhenKept(absl::StatusOr<Reply> reply, const Done<Reply>& done, bool confirm = false);
  // Waits until what has been decided until now is kept, or cannot be kept at present.
  absl::Status AwaitKept();
  // The records that have changed. Those that are too large for a store are left out or deleted,
  // with a warning on their job.
  std::vector<MetaStore::Write> TakeRecords() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes a job of the draft, keeps its record, and then queues it.
  absl::StatusOr<std::string> KeepAndAdd(const JobDraft& draft, uint64_t number,
                                         std::unique_ptr<const ResumePoint> resume,
                                         const SubmitJobRequest& request,
                                         const std::string& request_id);
  // Makes the folder `name`-N below default_output and returns N, the first number from `number` on
  // that is free. Safe against another scheduler that does the same at the same time.
  absl::StatusOr<uint64_t> ReserveFolder(const std::string& name, uint64_t number);
  void TimerLoop();
  void NameMissing(absl::Time now);
  void LookAfterSilentMembers();
  // Frees the place of a member whose process, on this host, has ended. False when it has not, or
  // cannot be judged here.
  bool FreePlaceOf(const RegisterRequest& newcomer, const Incumbent& incumbent);
  void LogRegistration(const RegisterRequest& request, const absl::StatusOr<RegisterReply>& reply);

  const Options options_;
  CallerLog caller_log_;
  Mutex submit_mutex_;  // held while a job is submitted; taken before mutex_
  Mutex mutex_;
  CondVar changed_;
  SchedulerCore core_ ABSL_GUARDED_BY(mutex_);
  WaitingCalls waiting_ ABSL_GUARDED_BY(mutex_);
  bool stop_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> refused_life_{0};  // of the last logged refusal; relaxed: only for the log
  absl::Time named_at_;                    // used only by the timer thread
  std::unique_ptr<JobOutput> output_;
  std::unique_ptr<StateKeeper> keeper_;  // null: no store
  std::thread timer_;
};

}  // namespace sluice
