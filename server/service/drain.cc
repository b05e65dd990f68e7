#include "server/service/drain.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/transport/retry.h"

namespace sluice {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(200);  // between two questions

}  // namespace

absl::Status DrainPserver(const DrainOptions& options) {
  // A pserver without tables leaves at once: nothing has to move.
  if (!options.hosts_jobs()) return absl::OkStatus();
  const absl::Time end = options.clock->Now() + options.wait;
  SilenceTimer silence;
  bool told = false;
  for (;;) {
    DrainPserverRequest request;
    request.set_rank(options.rank);
    const MemberKey key = options.key();  // another one after it has registered again
    request.set_member_id(key.id);
    request.set_secret(key.secret);
    const auto reply = options.scheduler->DrainPserver(request);
    if (!reply.ok() && (!MayBeAnsweredLater(reply.status()) ||
                        silence.Unanswered(options.clock->Now()) >= kTakeoverPatience)) {
      return reply.status();
    }
    std::string left;
    if (reply.ok()) {
      silence.Answered();
      // The scheduler may have withdrawn the jobs before this process has dropped their tables.
      // Only the scheduler's word counts then: nobody reads these tables any more.
      if (reply->jobs().empty()) return absl::OkStatus();
      if (!reply->failure().empty()) return absl::FailedPreconditionError(reply->failure());
      left = absl::StrJoin(reply->jobs(), ", ");
      if (!told) options.log(absl::StrCat("the shards of ", left, " move to other pservers"));
      told = true;
    }
    const absl::Time now = options.clock->Now();
    if (now >= end) {
      if (!reply.ok()) return reply.status();
      return absl::DeadlineExceededError(
          absl::StrCat(left, " still had shards here after ", absl::FormatDuration(options.wait),
                       " (--drain_s); their jobs recover as from the loss of this pserver"));
    }
    options.clock->Sleep(std::min(kPause, end - now));
  }
}

}  // namespace sluice
