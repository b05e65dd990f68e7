// The seam to time: decisions take `now` as an argument; loops ask a Clock.
//
// A Clock has two times, which are never mixed. Now() measures leases, timeouts, pauses and
// durations, and never jumps. WallNow() is the time of day, for time stamps; it jumps when the
// machine's clock is set. Only clock.cc may read the time of day (tests/wall_clock_check.sh).
#pragma once

#include "absl/time/time.h"

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

}  // namespace sluice
