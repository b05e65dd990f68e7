// Lets callers wait until the client has made progress, has failed, or the time is up.
//
// A wait spins at first, because the reply to a small request comes sooner than a sleeping thread
// wakes.
//
// Thread safety: guarded by the owner's lock. Calls that release it take it as an argument, and one
// caller waits at a time. A ChangeSignal is safe from any thread.
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

// Wakes waiters after a change.
class ChangeSignal {
 public:
  // Call after making the change under the lock, and preferably without the lock: the woken caller
  // takes it.
  void Notify();
  // Returns after the next Notify, after `at_most`, or spuriously. It spins until `awake_until` and
  // then sleeps. Releases `mu` meanwhile.
  void Wait(Mutex* mu, absl::Duration at_most, std::chrono::steady_clock::time_point awake_until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

 private:
  CondVar notified_;
  std::atomic<uint64_t> changes_{0};  // calls of Notify, for waits that do not sleep
};

class Waiter {
 public:
  // `clock` and `changed` outlive the waiter. `timeout` bounds each wait. `on_long_wait`: called
  // under the caller's lock, again and again while a wait takes long; may be null.
  Waiter(Clock* clock, absl::Duration timeout, ChangeSignal* changed,
         std::function<void()> on_long_wait = nullptr)
      : clock_(clock),
        timeout_(timeout),
        changed_(changed),
        on_long_wait_(std::move(on_long_wait)) {}

  // Waits until done() holds. `mu` is released while waiting and held while either function runs.
  // Returns the client's failure, or DEADLINE_EXCEEDED with what() and the last refusal.
  absl::Status Until(Mutex* mu, const std::function<bool()>& done,
                     const std::function<std::string()>& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Waits until done() holds, without a deadline, and ignores failures.
  void UntilDone(Mutex* mu, const std::function<bool()>& done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Call when answers are slow for a known reason. The timeout of the present wait starts again.
  void Excuse() { excused_at_ = clock_->Now(); }
  absl::Time excused_at() const { return excused_at_; }

  // Marks the client as failed: from now on every wait returns the first such status.
  void Fail(const absl::Status& status);
  const absl::Status& failure() const { return failure_; }

  // Records why a pserver or the scheduler last refused a request; the error of a timed-out wait
  // quotes it.
  void NoteRefusal(std::string why) { last_refusal_ = std::move(why); }
  const std::string& last_refusal() const { return last_refusal_; }

  // "waiting for a pull ... for 1.2 s", of a long wait also when it fails; "" while no caller
  // waits.
  std::string Describe() const;

 private:
  Clock* const clock_;
  const absl::Duration timeout_;
  ChangeSignal* const changed_;
  const std::function<void()> on_long_wait_;
  absl::Time excused_at_ = absl::InfinitePast();
  absl::Status failure_;
  std::string last_refusal_;
  std::function<std::string()> waiting_for_;  // of the present wait; null: none
  absl::Time waiting_since_;
};

}  // namespace sluice
