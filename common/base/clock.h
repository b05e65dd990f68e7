// The seam to time: decisions take `now` as an argument, loops ask a Clock.
//
// Two times, never mixed: Now() measures leases, timeouts, pauses and durations, and never jumps;
// WallNow() is the time of day, for stamps, and jumps when somebody sets the machine's clock. The
// .cc file is the only one that may read the time of day (tests/wall_clock_check.sh).
#pragma once

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace sluice {

// Thread safety: implementations are safe to call from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  // Comparable only with other values of the same process; not a date. It stands still while the
  // machine is suspended.
  virtual absl::Time Now() = 0;
  // The time of day, for log lines, event files, traces and comparisons with times of files.
  virtual absl::Time WallNow() = 0;
  virtual void Sleep(absl::Duration d) = 0;
  // The machine's clocks; never destroyed.
  static Clock* Real();
};

// A clock that stands still until moved.
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
  // Somebody sets the machine's clock.
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
