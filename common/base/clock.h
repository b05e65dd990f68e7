// The seam to time: decisions take `now` as an argument, loops ask a Clock.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace sluice {

// Thread safety: implementations are safe to call from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
  virtual void Sleep(absl::Duration d) = 0;
  // The machine's clock; never destroyed.
  static Clock* Real();
};

// A clock that stands still until moved.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}
  absl::Time Now() override {
    MutexLock lock(&mutex_);
    return now_;
  }
  void Sleep(absl::Duration d) override { Advance(d); }
  void Advance(absl::Duration d) {
    MutexLock lock(&mutex_);
    now_ += d;
  }

 private:
  Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
