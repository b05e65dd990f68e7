#include "scheduler/service/standby.h"

#include "absl/strings/str_cat.h"
#include "common/transport/retry.h"

namespace sluice {

void Standby::Say(const std::string& who, const std::string& why) {
  if (said_ == who) return;
  said_ = who;
  options_.say(absl::StrCat("standby: ", why));
}

absl::StatusOr<uint64_t> Standby::AwaitTerm() {
  bool had_leader = false;  // since this one waits
  absl::Time away_at = absl::InfinitePast();
  for (;;) {
    const absl::StatusOr<Leadership::Leader> leader = options_.leadership->Find();
    absl::Status error = leader.status();
    if (leader.ok() && !leader->name.empty()) {
      had_leader = true;
      Say(leader->name, absl::StrCat(leader->name, " leads"));
    } else if (leader.ok() && leader->ended && had_leader) {
      return absl::OutOfRangeError("the cluster was shut down");
    } else if (leader.ok() && options_.clock->Now() < away_at + options_.lease) {
      Say("?",
          "nobody leads; the state store was unreachable a moment ago, so a leader that still "
          "runs gets one lease to return");
    } else if (leader.ok()) {
      const absl::StatusOr<uint64_t> term = options_.leadership->AcquireFreeTerm();
      // Another standby may have been faster.
      if (!absl::IsFailedPrecondition(term.status())) error = term.status();
      if (term.ok()) {
        if (had_leader) Say("", "nobody leads any more; taking over");
        return term;
      }
    }
    if (!error.ok()) {
      if (!StoreMayRecover(error.code())) return error;
      away_at = options_.clock->Now();
      Say("!", absl::StrCat("cannot find out who leads: ", error.message()));
    }
    if (!options_.pause(options_.look_every)) {
      return absl::CancelledError("stopped while another scheduler led");
    }
  }
}

}  // namespace sluice
