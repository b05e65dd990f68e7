// A clock that stands still until a test moves it.
//
// Thread safety: safe from any thread.
#pragma once

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice {

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
