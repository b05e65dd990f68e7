// Ends a wait that takes too long, from a thread of its own.
//
// It is for waits whose own timeout does more than end them, as those of Gloo do (gloo_peers.cc).
//
// Invariant: a wait is aborted only between its Begin and its End.
//
// Thread safety: Start, Stop, Begin and End are for one thread at a time; Abort is safe from any
// thread.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace sluice {

class WaitWatchdog {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // No wait is given less time than `shortest`, so that looking as often is enough, and no wait has
  // to wake the watchdog.
  explicit WaitWatchdog(std::chrono::nanoseconds shortest) : shortest_(shortest) {}
  ~WaitWatchdog() { Stop(); }

  // Starts the thread, and ends it. A watchdog that was stopped may start again.
  void Start();
  void Stop();
  bool running() const { return thread_.joinable(); }

  // A wait begins, which `abort` ends. `abort` may be called more than once and on any thread,
  // under a lock: it must neither block nor call the watchdog.
  // REQUIRES: no other wait is under way.
  void Begin(TimePoint deadline, std::function<void()> abort);
  // The wait has ended. True: the watchdog has aborted it at its deadline.
  bool End();
  // Aborts the wait that is under way, if there is one.
  void Abort();

 private:
  void Watch();

  const std::chrono::nanoseconds shortest_;
  Mutex mutex_;
  CondVar stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> abort_ ABSL_GUARDED_BY(mutex_);  // of the present wait; null: there is none
  TimePoint deadline_ ABSL_GUARDED_BY(mutex_);
  bool expired_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice
