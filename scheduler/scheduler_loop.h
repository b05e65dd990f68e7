// Runs the core for several threads: holds its lock, gives it the time, and keeps the calls that
// wait for something new.
//
// A call is answered through its `done`, at once or later, on any thread and never under the lock.
// Its request must live until then. An event answers the calls that wait for what it has changed
// and those that are due; a timer looks for due calls ten times a second as well.
//
// Thread safety: safe.
//
// Lock order: submit_mutex_, then mutex_, then that of JobOutput.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "scheduler/job_output.h"
#include "scheduler/scheduler_core.h"
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
    // Members of this process space that fall silent are looked at: one whose process has ended is
    // gone before its lease runs out. Empty: none is.
    std::string process_space;
    std::function<bool(uint32_t pid)> process_has_ended;  // in process_space
    std::string default_output;  // folder of the outputs of jobs that name none
    std::function<void(const std::string&)> log;
    std::function<void(const std::string& job_id, const std::string& line)> job_log;
    // After a shutdown, once: members have left and results are written. On a thread of the loop.
    std::function<void()> on_end;
  };
  explicit SchedulerLoop(Options options);
  // Answers the calls that wait. No call may come any more.
  ~SchedulerLoop();

  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request);
  void Poll(const PollRequest* request, Done<PollReply> done);
  void Leave(const LeaveRequest& request);
  void MemberEnded(const MemberEndedRequest& request);
  void NextPhase(const NextPhaseRequest* request, Done<NextPhaseReply> done);
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request);
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request);
  absl::Status FailJob(const FailJobRequest& request);
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest& request);
  void WatchJob(const WatchJobRequest* request, Done<WatchJobReply> done);
  absl::Status CancelJob(const CancelJobRequest& request);
  ClusterStatus GetStatus();
  void Shutdown();
  // Returns when on_end was called (it may still run).
  void WaitEnd();
  // Answers all waiting calls, and later ones at once, as if their time were up.
  void StopWaiting();
  std::string NotReady();

 private:
  using Answer = WaitingCalls::Answer;
  using Event = std::function<void(SchedulerCore& core, absl::Time now)>;
  // Also says whether and how its caller waits: *wait_ms > 0.
  using WaitingEvent = std::function<void(SchedulerCore& core, absl::Time now, uint32_t* wait_ms)>;

  // Runs `event` on the core under the lock, then what follows from it.
  void Run(const Event& event);
  // The same; true when the caller waits, and `call` (its deadline is set here) will answer it.
  bool RunOrWait(const WaitingEvent& event, WaitingCalls::Call call);
  std::vector<Answer> Settle(absl::Time now, bool all) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the folder `name`-N below default_output, of the first N from `number` on that nobody
  // has: also not another scheduler that does the same now. Returns N.
  absl::StatusOr<uint64_t> ReserveFolder(const std::string& name, uint64_t number);
  void TimerLoop();
  void NameMissing(absl::Time now);
  void LookAfterSilentMembers();
  void LogRegistration(const RegisterRequest& request, const absl::StatusOr<RegisterReply>& reply);

  const Options options_;
  Mutex submit_mutex_;  // held while a job is submitted, before mutex_
  Mutex mutex_;
  CondVar changed_;
  SchedulerCore core_ ABSL_GUARDED_BY(mutex_);
  WaitingCalls waiting_ ABSL_GUARDED_BY(mutex_);
  bool stop_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> refused_life_{0};  // relaxed: of the last refusal that was logged
  absl::Time named_at_;                    // of the timer thread
  std::unique_ptr<JobOutput> output_;
  std::thread timer_;
};

}  // namespace sluice
