// Decides when a process that has died is started again.
//
// The pause before a start is 0.1 s, doubled each time that the process lived less than a minute,
// at most 5 s. After kMostDeaths within a minute there is no other start.
//
// Thread safety: one thread.
#pragma once

#include <deque>
#include <optional>

#include "absl/time/time.h"

namespace sluice::cli {

class RestartPolicy {
 public:
  static constexpr size_t kMostDeaths = 5;
  static constexpr absl::Duration kWindow = absl::Minutes(1);

  // A process that started at `started` has died at `now`, both monotonic times. Returns the pause
  // before the next start; nothing when the process is not to be started again.
  std::optional<absl::Duration> Died(absl::Time started, absl::Time now);

 private:
  std::deque<absl::Time> deaths_;  // within the window
  absl::Duration pause_;           // before the last start; 0: the first, or after a long life
};

}  // namespace sluice::cli
