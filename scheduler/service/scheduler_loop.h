// Runs the core for several threads: takes events, steps the core, commits records, and answers.
//
// An event is a function that runs on the core under the lock, with the time. It answers the calls
// that wait for what it has changed, and those whose deadline has passed. A timer looks for passed
// deadlines ten times a second. Answers are given on any thread, and never under the lock.
//
// The records that an event changes are committed before the files that it causes are written, and
// before the answers leave that wait for them (WhenKept, StateKeeper). While the store cannot be
// written, running attempts continue, and nothing begins that must be kept first: submissions are
// refused, and the core waits (SchedulerCore::StoreRefuses). The status says so.
//
// RequestIntake makes events of the calls of members and operators.
//
// Thread safety: safe.
//
// Lock order: mutex_, then the locks of StateKeeper, JobOutput and JobCurves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/files/job_output.h"
#include "scheduler/service/job_curves.h"
#include "scheduler/service/state_keeper.h"
#include "scheduler/service/waiting_calls.h"

namespace sluice {

class SchedulerLoop {
 public:
  struct Options {
    SchedulerCore::Options core;
    Clock* clock = nullptr;  // outlives the loop
    Env* env = nullptr;      // outlives the loop
    std::string host;
    std::string staging;  // JobOutput::Options::staging
    // The processes of silent members in this process space are checked, so that a member whose
    // process has ended is lost before its lease runs out. Empty: no checks.
    std::string process_space;
    std::function<bool(uint32_t pid)> process_has_ended;  // in process_space
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
    // Gets the points of the jobs' curves, too. May be null; outlives the loop.
    JobCurves* curves = nullptr;
    // Called once after a shutdown, on a thread of the loop, when SchedulerCore::CanEnd.
    std::function<void()> on_end;
  };
  // An event that throws bad_alloc is cut short, and the log says so. Its answer must have been
  // NoMemory before.
  using Event = std::function<void(SchedulerCore& core, absl::Time now)>;
  // *wait_ms > 0: the caller waits for at most this long.
  using WaitingEvent = std::function<void(SchedulerCore& core, absl::Time now, uint32_t* wait_ms)>;
  // Gets OK, or TakenOver.
  using Kept = std::function<void(const absl::Status& kept)>;

  // Takes over options.stored before it returns.
  explicit SchedulerLoop(Options options);
  // Answers the calls that wait. Nothing may be called from now on, except by these answers.
  ~SchedulerLoop();

  // UNAVAILABLE: a newer scheduler has taken over, and does not know what this one has decided.
  static absl::Status TakenOver();
  // RESOURCE_EXHAUSTED: the answer of a call whose event had no memory.
  static absl::Status NoMemory();

  // What GetStatus says of this scheduler, which knows its addresses only once it listens.
  void NameSelf(MemberStatus self);

  // Runs `event` on the core under the lock, then what follows from it.
  void Run(const Event& event);
  // Runs `look`, which changes nothing.
  void Look(const Event& look);
  // Like Run. True when the caller waits; then `call`, whose deadline is set here, will answer it.
  bool RunOrWait(const WaitingEvent& event, WaitingCalls::Call call);
  // Calls `done` when what has been decided until now is kept, or cannot be kept at present. With
  // `confirm` the scheduler's term is confirmed first. Returns at once.
  void WhenKept(Kept done, bool confirm = false);
  // Like WhenKept with `confirm`, but while the store cannot be written, `done` waits until it has
  // been tried again.
  void WhenTried(Kept done);
  // Commits the records, and waits for that: see StateKeeper::Commit. OK when there is no store.
  absl::Status Commit(std::vector<MetaStore::Write> records);
  // True when the process can be judged from here, and has ended.
  bool SeesEnded(const std::string& process_space, uint32_t pid) const;

  ClusterStatus GetStatus();
  bool ShuttingDown();
  // REQUIRES: a shutdown has begun. Returns when it is complete. on_end may still be running.
  void WaitEnd();
  // Answers all waiting calls now, and later ones at once, as if their deadlines had passed.
  void StopWaiting();
  std::string NotReady();

 private:
  using Answer = WaitingCalls::Answer;

  JobOutput::Options OutputOptions();
  StateKeeper::Options KeeperOptions();
  // Takes over the jobs of an earlier scheduler.
  void RestoreJobs();
  // Runs `step`. False: there was no memory for it; *line is for the log, if it is not empty.
  template <class Step>
  bool Try(const Step& step, std::string* line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The line about a call of `caller` that is answered early. "": there is none now.
  std::string CrowdedOut(const std::string& caller) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers calls, and commits and writes what the core has decided. Returns the answers.
  std::vector<Answer> Settle(absl::Time now, bool all) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The records that have changed. Those that are too large for a store are left out or deleted,
  // with a warning on their job.
  std::vector<MetaStore::Write> TakeRecords() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TimerLoop();
  void NameMissing(absl::Time now);
  void LookAfterSilentMembers();

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  SchedulerCore core_ ABSL_GUARDED_BY(mutex_);
  WaitingCalls waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t without_memory_ ABSL_GUARDED_BY(mutex_) = 0;  // events
  MemberStatus self_ ABSL_GUARDED_BY(mutex_);
  bool stop_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time named_at_;  // used only by the timer thread
  std::unique_ptr<JobOutput> output_;
  std::unique_ptr<StateKeeper> keeper_;  // null: no store
  std::thread timer_;
};

}  // namespace sluice
