#include "cli/hosts/guard_watch.h"

#include "absl/strings/str_cat.h"
#include "cli/hosts/guard_message.h"

namespace sluice::cli {

GuardWatch::Action GuardWatch::Step(absl::Time now, bool daemons_left) {
  constexpr absl::Duration kPatience = absl::Seconds(kGuardPatienceS),
                           kGrace = absl::Seconds(kGuardGraceS);
  if (!ending() && now - heard_ >= kPatience)
    MustEnd(absl::StrCat("no word from the launcher for ", kGuardPatienceS, " s"));
  if (!ending()) return Action::kNone;
  // A process that survives SIGKILL waits in the kernel, for a disk that is gone perhaps. Nobody
  // can end it.
  if (!daemons_left || now - killed_ >= kGrace) return Action::kLeave;
  if (terminated_ == absl::InfiniteFuture()) {
    terminated_ = now;
    return Action::kTerminate;
  }
  if (killed_ == absl::InfiniteFuture() && now - terminated_ >= kGrace) {
    killed_ = now;
    return Action::kKill;
  }
  return Action::kNone;
}

}  // namespace sluice::cli
