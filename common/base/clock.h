// The seam to time: decisions take `now` as an argument; loops ask a Clock.
//
// A Clock has two times, which are never mixed. Now() measures leases, timeouts, pauses and
// durations, and never jumps. WallNow() is the time of day, for time stamps; it jumps when the
// machine's clock is set. Only clock.cc may read the time of day (tests/wall_clock_check.sh).
#pragma once

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace sluice {

// Thread safety: safe from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  // Not a date: compare it only with other values of the same process. It stands still while the
  // machine is suspended.
  virtual absl::Time Now() = 0;
  // The time of day, for log lines, event files, traces and comparisons with file times.
  virtual absl::Time WallNow() = 0;
  virtual void Sleep(absl::Duration d) = 0;
  // The machine's clocks; never destroyed.
  static Clock* Real();
};

// A clock that stands still until a test moves it.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch()) : now_(start), wall_(start) {}
  absl::Time Now() override {
    MutexLock lock(&mutex_);
    return now_;
  }
  absl::Time WallNow() override {
    MutexLock lock(&mutex_);
    return wall_;
  }
  void Sleep(absl::Duration d) override { Advance(d); }
  void Advance(absl::Duration d) {
    MutexLock lock(&mutex_);
    now_ += d;
    wall_ += d;
  }
  // Acts as if the machine's clock were set: only the time of day moves.
  void StepWall(absl::Duration d) {
    MutexLock lock(&mutex_);
    wall_ += d;
  }

 private:
  Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
  absl::Time wall_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
