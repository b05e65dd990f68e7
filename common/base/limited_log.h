// Writes the lines of the process log that others cause, such as callers.
//
// They say what is in these lines, and how often they come. So a line is cut and made printable,
// and after a burst only one is written in each interval. A later line counts those that were left
// out.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice {

class LimitedLog {
 public:
  static constexpr size_t kMaxLineBytes = 400;
  static constexpr int kBurstOfCallers = 1000;
  struct Limits {
    int burst = 1;  // lines at once
    absl::Duration line_every = absl::Seconds(10);
    bool write_repeats = true;  // false: a line that equals the one before is left out
  };
  // For lines that say what each caller did: rare ones are all written, and a flood is not.
  static Limits OfCallers() {
    Limits limits;
    limits.burst = kBurstOfCallers;
    limits.line_every = absl::Seconds(1);
    return limits;
  }

  // `clock` outlives the log. `log` may be empty.
  LimitedLog(Clock* clock, Limits limits, std::function<void(const std::string&)> log)
      : clock_(clock), limits_(limits), log_(std::move(log)) {}
  void Say(absl::string_view line);

 private:
  Clock* const clock_;
  const Limits limits_;
  const std::function<void(const std::string&)> log_;
  Mutex mutex_;
  std::string last_ ABSL_GUARDED_BY(mutex_);
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  // The time when a whole burst is allowed again.
  absl::Time full_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace sluice
