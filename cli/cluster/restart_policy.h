// Decides when a process that has died is started again.
//
// The pause before a start is 0.1 s, doubled each time that the process lived less than a minute,
// at most 5 s. There is no other start after kMostDeaths within a minute, nor after
// kMostFailedStarts in a row, however long they took: a program of the user may need minutes to
// reach its mistake.
//
// Thread safety: one thread.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace sluice::cli {

class RestartPolicy {
 public:
  static constexpr size_t kMostDeaths = 5;
  static constexpr size_t kMostFailedStarts = 3;
  static constexpr absl::Duration kWindow = absl::Minutes(1);

  // A process that started at `started` has died at `now`, both monotonic times. `failed_start`: it
  // ended by itself, with an error, before it was what it was started for. Returns the pause before
  // the next start; nothing when the process is not to be started again.
  std::optional<absl::Duration> Died(absl::Time started, absl::Time now, bool failed_start = false);
  // Why there is no other start, e.g. "its death number 5 within a minute".
  std::string WhyNotAgain() const;

 private:
  size_t failed_starts_ = 0;       // in a row
  std::deque<absl::Time> deaths_;  // within the window
  absl::Duration pause_;           // before the last start; 0: the first, or after a long life
};

}  // namespace sluice::cli
