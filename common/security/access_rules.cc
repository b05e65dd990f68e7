#include "common/security/access_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {

const std::vector<AccessRule>& AccessRules() {
  constexpr PeerRole kWorker = PeerRole::kWorker, kPserver = PeerRole::kPserver,
                     kOperator = PeerRole::kOperator;
  static const auto* const rules = new std::vector<AccessRule>{
      // Members of a cluster.
      {"/sluice.Scheduler/Register", {kWorker, kPserver}},
      {"/sluice.Scheduler/Poll", {kWorker, kPserver}},
      {"/sluice.Scheduler/Leave", {kWorker, kPserver}},
      // A launcher, which is an operator, reports the deaths of the processes that it has started.
      {"/sluice.Scheduler/MemberEnded", {kOperator}},
      // Workers of a job.
      {"/sluice.Scheduler/NextPhase", {kWorker}},
      {"/sluice.Scheduler/NextTask", {kWorker}},
      {"/sluice.Scheduler/GetRoute", {kWorker}},
      {"/sluice.Scheduler/FailJob", {kWorker}},
      // Users.
      {"/sluice.Scheduler/SubmitJob", {kOperator}},
      {"/sluice.Scheduler/WatchJob", {kOperator}},
      {"/sluice.Scheduler/CheckpointJob", {kOperator}},
      {"/sluice.Scheduler/CancelJob", {kOperator}},
      {"/sluice.Scheduler/ScaleJob", {kOperator}},
      // A pserver that is told to end moves its shards away first.
      {"/sluice.Scheduler/DrainPserver", {kOperator, kPserver}},
      {"/sluice.Scheduler/GetStatus", {kOperator}},
      {"/sluice.Scheduler/Shutdown", {kOperator}},
      // The data plane.
      {"/sluice.Pserver/Exchange", {kWorker}},
      {"/sluice.Pserver/SaveShards", {kWorker}},
      {"/sluice.Replica/Exchange", {kPserver}},
  };
  return *rules;
}

absl::Status CheckAccess(const PeerIdentity& peer, absl::string_view method) {
  const std::vector<AccessRule>& rules = AccessRules();
  const auto rule = std::find_if(rules.begin(), rules.end(),
                                 [&](const AccessRule& r) { return r.method == method; });
  if (rule == rules.end())
    return absl::PermissionDeniedError(absl::StrCat(method, " may be called by nobody"));
  if (!peer.verified) return absl::OkStatus();
  if (std::find(rule->roles.begin(), rule->roles.end(), peer.role) != rule->roles.end())
    return absl::OkStatus();
  const auto name = [](std::string* out, PeerRole role) { out->append(PeerRoleName(role)); };
  return absl::PermissionDeniedError(
      absl::StrCat(method, " needs the certificate of a ", absl::StrJoin(rule->roles, " or ", name),
                   ", and this peer's certificate is one for ", peer.ToString()));
}

}  // namespace sluice
