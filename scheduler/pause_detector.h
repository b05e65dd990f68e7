// Notices that the scheduler itself was stopped, so that nobody is judged by that time.
//
// A stopped scheduler (SIGSTOP, a suspended machine) hears no heartbeats, and its monotonic clock
// may go on. Its timer ticks several times a second, so a gap between two ticks shows the pause.
//
// Thread safety: one thread.
#pragma once

#include "absl/time/time.h"

namespace sluice {

class PauseDetector {
 public:
  // `lease`: of the members.
  PauseDetector(absl::Duration lease, absl::Time now);

  // To be called before an event judges anyone by time. True when the scheduler was stopped until
  // now.
  bool HasPaused(absl::Time now);
  // The timer has ticked. To be called after HasPaused.
  void Ticked(absl::Time now) { ticked_at_ = now; }

  // How long something lasts that began at `begin`, not counting the time before the last pause
  // ended. Negative infinity for InfiniteFuture.
  absl::Duration Since(absl::Time begin, absl::Time now) const;

 private:
  const absl::Duration longest_gap_;
  absl::Time ticked_at_;
  absl::Time resumed_at_ = absl::InfinitePast();
};

}  // namespace sluice
