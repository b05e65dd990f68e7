// Lets callers wait for the client's progress: until it is made, the client fails, or the time is
// up.
//
// A wait watches for changes without sleeping at first, because the answer to a small request comes
// sooner than a sleeping thread wakes.
//
// Thread safety: a ChangeSignal is safe from any thread. A Waiter is guarded by the owner's lock,
// which is passed to the calls that release it; one caller waits at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice {

// Something that a caller may wait for has changed.
class ChangeSignal {
 public:
  // After the change was made under the lock; best without the lock, which the woken caller takes.
  void Notify();
  // Returns after the next Notify, after `at_most`, or without a cause. Until `awake_until` it
  // watches instead of sleeping. `mu` is released meanwhile.
  void Wait(Mutex* mu, absl::Duration at_most, std::chrono::steady_clock::time_point awake_until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

 private:
  CondVar notified_;
  std::atomic<uint64_t> changes_{0};  // calls of Notify, for waits that do not sleep
};

class Waiter {
 public:
  // `clock` and `changed` outlive the waiter. `timeout` bounds each wait.
  Waiter(Clock* clock, absl::Duration timeout, ChangeSignal* changed)
      : clock_(clock), timeout_(timeout), changed_(changed) {}

  // Waits until done() holds; `mu` is released meanwhile and held in both functions. Returns the
  // client's failure, or DEADLINE_EXCEEDED naming what() and the last refusal.
  absl::Status Until(Mutex* mu, const std::function<bool()>& done,
                     const std::function<std::string()>& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The same without an end of its own: whatever has failed, and however long it takes.
  void UntilDone(Mutex* mu, const std::function<bool()>& done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // The client cannot go on: every wait returns the first such status.
  void Fail(const absl::Status& status);
  const absl::Status& failure() const { return failure_; }

  // Why a pserver or the scheduler last refused something, to explain a wait that takes too long.
  void NoteRefusal(std::string why) { last_refusal_ = std::move(why); }
  const std::string& last_refusal() const { return last_refusal_; }

  // "waiting for a pull ... for 1.2 s"; "" while no caller waits.
  std::string Describe() const;

 private:
  Clock* const clock_;
  const absl::Duration timeout_;
  ChangeSignal* const changed_;
  absl::Status failure_;
  std::string last_refusal_;
  std::function<std::string()> waiting_for_;  // of the present wait; null: none
  absl::Time waiting_since_;
};

}  // namespace sluice
