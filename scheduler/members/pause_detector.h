// Detects that the scheduler itself was stopped, so that this time counts against nobody.
//
// A stopped scheduler (SIGSTOP, a suspended machine) hears no heartbeats, and its monotonic clock
// may continue. Its timer ticks several times a second, so a gap between two ticks shows the pause.
//
// Thread safety: one thread.
#pragma once

#include "absl/time/time.h"

namespace sluice {

class PauseDetector {
 public:
  // `lease`: the members' lease.
  PauseDetector(absl::Duration lease, absl::Time now);

  // True when the scheduler was stopped until now. To be called before an event judges anyone by
  // time.
  bool HasPaused(absl::Time now);
  // Time before `now` counts against nobody.
  void Resume(absl::Time now) { resumed_at_ = now; }
  // Notes a tick of the timer. To be called after HasPaused.
  void Ticked(absl::Time now) { ticked_at_ = now; }

  // Time since `begin`, or since the last pause ended (Resume) if that is later. Negative infinity for
  // InfiniteFuture.
  absl::Duration Since(absl::Time begin, absl::Time now) const;

 private:
  const absl::Duration longest_gap_;
  absl::Time ticked_at_;
  absl::Time resumed_at_ = absl::InfinitePast();
};

}  // namespace sluice
