// The seam to time: decisions take `now` as an argument, loops ask a Clock.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

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
  absl::Time Now() override { return now_; }
  void Sleep(absl::Duration d) override { now_ += d; }
  void Advance(absl::Duration d) { now_ += d; }

 private:
  absl::Time now_;
};

}  // namespace sluice
