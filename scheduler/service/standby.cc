#include "scheduler/service/standby.h"

#include "absl/strings/str_cat.h"
#include "common/transport/retry.h"

namespace sluice {
namespace {

constexpr absl::Duration kTakeAgain = absl::Seconds(1);  // after the store has refused the term

}  // namespace

void Standby::Say(const std::string& who, const std::string& why) {
  if (said_ == who) return;
  said_ = who;
  options_.say(options_.take ? why : absl::StrCat("standby: ", why));
}

void Standby::Answer(const std::string& why) {
  if (!options_.answer || answers_ == why) return;
  answers_ = why;
  options_.answer(why);
}

absl::StatusOr<uint64_t> Standby::AwaitTerm() {
  if (!options_.take) return AwaitFreeTerm();
  for (;;) {
    const absl::StatusOr<uint64_t> term = options_.take();
    if (!absl::IsResourceExhausted(term.status()) || options_.leadership == nullptr) return term;
    const absl::StatusOr<Leadership::Leader> leader = options_.leadership->Find();
    // Members of another one that leads must stay there.
    const bool free = leader.ok() && (leader->name.empty() || leader->name == options_.name);
    const std::string why =
        absl::StrCat("waits for its term from the state store: ", term.status().message());
    Say("!", why);
    Answer(free ? why : "");
    if (!options_.pause(kTakeAgain))
      return absl::CancelledError("stopped while the state store refused its term");
  }
}

absl::StatusOr<uint64_t> Standby::AwaitFreeTerm() {
  bool had_leader = false;  // since this one waits
  absl::Time away_at = absl::InfinitePast();
  for (;;) {
    const absl::StatusOr<Leadership::Leader> leader = options_.leadership->Find();
    absl::Status error = leader.status();
    if (leader.ok() && !leader->name.empty()) {
      had_leader = true;
      Answer("");
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
      if (absl::IsResourceExhausted(error)) {
        Answer(absl::StrCat("waits for its term from the state store: ", error.message()));
      }
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
