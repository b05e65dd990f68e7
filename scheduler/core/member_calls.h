// Answers the calls of pservers and workers as members of the cluster: they register, report, learn
// what to do, and leave.
//
// A call that names a member and lacks its secret (RegisterReply.secret) is PERMISSION_DENIED and
// changes nothing.
//
// Cost: a report costs as much as it contains.
//
// Thread safety: one thread (the loop locks).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/core_parts.h"

namespace sluice {

// The outcome of a registration, besides the reply.
struct RegisterNotes {
  std::string replaced;      // the living member whose place the caller has taken; empty: none
  bool disbelieved = false;  // the caller was not believed that the incumbent's process has ended
  std::vector<std::string> refused_holds;  // jobs that it says to serve, without their pass
};

class MemberCalls {
 public:
  // `parts` outlives this.
  explicit MemberCalls(CoreParts* parts) : parts_(parts) {}

  // `believed`: the caller is believed when it says that the process of the living member with its
  // role and rank has ended. `notes`: may be null.
  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request, absl::Time now,
                                         bool believed = true, RegisterNotes* notes = nullptr);
  // Takes a member's report. The reply is the member's desired state, or only its version when the
  // member has seen that version.
  absl::StatusOr<PollReply> Poll(const PollRequest& request, absl::Time now);
  absl::StatusOr<PollReply> Desired(uint64_t member_id, uint64_t seen_version = 0);
  absl::StatusOr<uint64_t> DesiredVersion(uint64_t member_id);
  // OK also when the member is gone already.
  absl::Status Leave(const LeaveRequest& request, absl::Time now);
  std::optional<std::pair<Role, uint32_t>> RoleAndRankOf(uint64_t member_id) const;
  // Returns false, and does nothing, when another process is the member, or the member had left
  // before. True also when its loss is known already.
  bool MemberEnded(const MemberEndedRequest& request, absl::Time now);
  // Whether this scheduler has had the process as a member. One that was started again knows nobody
  // who has not registered since.
  bool Knows(const MemberEndedRequest& process) const {
    return parts_->members.FindProcess(process) != nullptr;
  }
  // The connection over which the member's report waited for an answer has broken. Does nothing
  // when the secret is not the member's.
  void ConnectionBroke(uint64_t member_id, absl::string_view secret, absl::Time now);

 private:
  // The request without the work whose pass does not fit.
  RegisterRequest WithProvenHolds(const RegisterRequest& request, RegisterNotes* notes) const;
  // Each takes one part of a member's report.
  void TakeHosted(const Member& pserver, absl::Time now);
  void TakeTraces(const PollRequest& request, const Member& member, absl::Time now);
  void TakeFreshness(const Member& member, absl::Time now);

  CoreParts* const parts_;
};

}  // namespace sluice
