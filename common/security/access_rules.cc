#include "common/security/access_rules.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

const std::string& NameOf(const AccessRule& rule) { return rule.method; }
const std::string& NameOf(const PageRule& rule) { return rule.path; }

template <class Rules>
auto Find(const Rules& rules, absl::string_view name) {
  return std::find_if(rules.begin(), rules.end(),
                      [&](const auto& rule) { return NameOf(rule) == name; });
}

absl::Status CheckRoles(const PeerIdentity& peer, absl::string_view what,
                        const std::vector<PeerRole>& roles) {
  if (!peer.verified || std::find(roles.begin(), roles.end(), peer.role) != roles.end())
    return absl::OkStatus();
  const auto name = [](std::string* out, PeerRole role) { out->append(PeerRoleName(role)); };
  return absl::PermissionDeniedError(
      absl::StrCat(what, " needs the certificate of a ", absl::StrJoin(roles, " or ", name),
                   ", and this peer's certificate is one for ", peer.ToString()));
}

}  // namespace

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
      {"/sluice.Scheduler/Gather", {kWorker}},
      {"/sluice.Scheduler/EndJob", {kWorker}},
      // Users.
      {"/sluice.Scheduler/SubmitJob", {kOperator}},
      {"/sluice.Scheduler/WatchJob", {kOperator}},
      {"/sluice.Scheduler/CheckpointJob", {kOperator}},
      {"/sluice.Scheduler/DeleteRows", {kOperator}},
      {"/sluice.Scheduler/CancelJob", {kOperator}},
      {"/sluice.Scheduler/ScaleJob", {kOperator}},
      // A pserver that is told to end moves its shards away first.
      {"/sluice.Scheduler/DrainPserver", {kOperator, kPserver}},
      {"/sluice.Scheduler/GetStatus", {kOperator}},
      {"/sluice.Scheduler/Shutdown", {kOperator}},
      // The data plane.
      {"/sluice.Pserver/Exchange", {kWorker}},
      {"/sluice.Pserver/SaveShards", {kWorker}},
      {"/sluice.Pserver/OpenSharedMemory", {kWorker}},
      {"/sluice.Replica/Exchange", {kPserver}},
  };
  return *rules;
}

const std::vector<PageRule>& PageRules() {
  constexpr PeerRole kOperator = PeerRole::kOperator;
  static const auto* const rules = new std::vector<PageRule>{
      // Probes of Kubernetes and of load balancers cannot show a certificate.
      {"/livez", true, {}},
      {"/readyz", true, {}},
      {"/", false, {kOperator}},
      {"/metrics", false, {kOperator}},
      {"/statusz", false, {kOperator}},
      {"/api/v1/status", false, {kOperator}},
      {"/api/v1/jobs", false, {kOperator}},
      {"/api/v1/jobs/", false, {kOperator}},
      {"/api/v1/logs/", false, {kOperator}},
      {"/page/", false, {kOperator}},
  };
  return *rules;
}

absl::Status CheckAccess(const PeerIdentity& peer, absl::string_view method) {
  const auto rule = Find(AccessRules(), method);
  if (rule == AccessRules().end())
    return absl::PermissionDeniedError(absl::StrCat(method, " may be called by nobody"));
  return CheckRoles(peer, method, rule->roles);
}

std::string PageOf(absl::string_view path) {
  for (const PageRule& rule : PageRules()) {
    if (rule.path.size() > 1 && rule.path.back() == '/' && absl::StartsWith(path, rule.path))
      return rule.path;
  }
  return std::string(path);
}

absl::Status CheckPageAccess(const absl::StatusOr<PeerIdentity>& peer, absl::string_view path) {
  const auto rule = Find(PageRules(), path);
  if (rule == PageRules().end()) {
    if (peer.ok() && !peer->verified) return absl::OkStatus();  // the server says NOT FOUND
    return absl::PermissionDeniedError(absl::StrCat(path, " may be read by nobody"));
  }
  if (rule->everybody) return absl::OkStatus();
  if (!peer.ok()) return peer.status();
  return CheckRoles(*peer, path, rule->roles);
}

bool HasAccessRule(absl::string_view method_or_path) {
  return Find(AccessRules(), method_or_path) != AccessRules().end() ||
         Find(PageRules(), method_or_path) != PageRules().end();
}

}  // namespace sluice
