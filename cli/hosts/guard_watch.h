// Decides when the guard of a host ends its daemons, and how.
//
// Source: the promise of `sluice launch --hosts` that no daemon outlives its launcher by 15 s:
// kGuardPatienceS without a word, then SIGTERM, then SIGKILL after kGuardGraceS.
//
// Thread safety: one thread.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace sluice::cli {

class GuardWatch {
 public:
  enum class Action { kNone, kTerminate, kKill, kLeave };

  explicit GuardWatch(absl::Time now) : heard_(now) {}
  // A line of the launcher has come.
  void Heard(absl::Time now) { heard_ = now; }
  // The guard is to end its daemons: the launcher said so, its input has ended, or a signal came.
  // The first reason counts.
  void MustEnd(const std::string& why) {
    if (why_.empty()) why_ = why;
  }
  // Returns the action that is due now. kTerminate and kKill come once each; kLeave is the last.
  Action Step(absl::Time now, bool daemons_left);

  // New daemons must not be started any more.
  bool ending() const { return !why_.empty(); }
  const std::string& why() const { return why_; }

 private:
  absl::Time heard_;
  std::string why_;
  absl::Time terminated_ = absl::InfiniteFuture(), killed_ = absl::InfiniteFuture();
};

}  // namespace sluice::cli
