#include "common/daemon/place_claim.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/daemon/role_name.h"

namespace sluice {
namespace {

// A report that was already on its way when the place was refused does not prove that the incumbent
// lives. Only reports later than this count.
constexpr absl::Duration kOnItsWay = absl::Milliseconds(500);

// Tells incumbents apart. Their member ids are their own affair.
std::string NameOf(const Incumbent& incumbent) {
  return absl::StrCat(incumbent.pid(), " ", incumbent.process_space(), " ", incumbent.host());
}

std::string Describe(const RegisterRequest& self, const Incumbent& incumbent) {
  return absl::StrCat(RoleName(self.role()), " ", self.rank(), " is pid ", incumbent.pid(),
                      " on host ", incumbent.host());
}

}  // namespace

bool PlaceClaim::HasEnded(const Incumbent& incumbent) const {
  const std::string& space = options_.self.process_space();
  return !space.empty() && space == incumbent.process_space() &&
         options_.process_has_ended(incumbent.pid());
}

absl::Status PlaceClaim::Judge(const Incumbent& incumbent) {
  // The scheduler tells an age (last_seen_s), not a time, so the clocks of the hosts need not
  // agree.
  const absl::Time now = options_.clock->Now();
  const absl::Duration last_seen = absl::Seconds(incumbent.last_seen_s());
  if (incumbent_ != NameOf(incumbent)) {
    incumbent_ = NameOf(incumbent);
    refused_at_ = now;
    if (options_.log) {
      options_.log(absl::StrCat(Describe(options_.self, incumbent), ", last seen ",
                                absl::StrFormat("%.1f", incumbent.last_seen_s()),
                                " s ago: waiting until its lease runs out, or until it reports "
                                "and so keeps its rank"));
    }
    return absl::OkStatus();
  }
  if (now - last_seen <= refused_at_ + kOnItsWay) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(Describe(options_.self, incumbent),
                   ", which is running and keeps its rank; stop it, or start this process with "
                   "another --rank (SLUICE_RANK)"));
}

absl::StatusOr<std::optional<RegisterReply>> PlaceClaim::Ask(
    const google::protobuf::RepeatedPtrField<HeldJob>& holds) {
  RegisterRequest self = options_.self;
  *self.mutable_holds() = holds;
  SLUICE_ASSIGN_OR_RETURN(RegisterReply reply, options_.scheduler->Register(self));
  if (reply.waits_for() != waits_for_) {
    waits_for_ = reply.waits_for();
    if (options_.log && !waits_for_.empty())
      options_.log(absl::StrCat("the scheduler ", waits_for_));
  }
  if (!waits_for_.empty()) return std::optional<RegisterReply>();
  if (reply.member_id() == 0 && HasEnded(reply.incumbent())) {
    RegisterRequest takes_over = self;
    takes_over.set_ended_pid(reply.incumbent().pid());
    SLUICE_ASSIGN_OR_RETURN(reply, options_.scheduler->Register(takes_over));
  }
  if (reply.member_id() != 0) {
    incumbent_.clear();
    return std::optional<RegisterReply>(std::move(reply));
  }
  SLUICE_RETURN_IF_ERROR(Judge(reply.incumbent()));
  return std::optional<RegisterReply>();
}

}  // namespace sluice
