// Writes the lines of the process log that callers cause.
//
// Callers say what is in these lines, and how often they come. So a line is cut and made printable,
// one that repeats the line before is left out, and after a burst only one a second is written. A
// later line counts those that were left out.
//
// Thread safety: safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice {

class CallerLog {
 public:
  static constexpr size_t kMaxLineBytes = 400;
  static constexpr int kBurst = 1000;
  static constexpr absl::Duration kLineEvery = absl::Seconds(1);

  // `clock` outlives the log.
  CallerLog(Clock* clock, std::function<void(const std::string&)> log)
      : clock_(clock), log_(std::move(log)) {}
  void Say(absl::string_view line);

 private:
  Clock* const clock_;
  const std::function<void(const std::string&)> log_;
  Mutex mutex_;
  std::string last_ ABSL_GUARDED_BY(mutex_);
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  // The time when a whole burst is allowed again.
  absl::Time full_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace sluice
