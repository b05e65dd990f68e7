// Which roles may call which method, and read which admin page. A method or page without a rule is
// closed to everybody.
//
// A rule says who may call; what the caller may say in the call (its rank, its job) is checked
// where the call is handled.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/peer_identity.h"

namespace sluice {

struct AccessRule {
  std::string method;  // full name, such as "/sluice.Scheduler/SubmitJob"
  std::vector<PeerRole> roles;
};
const std::vector<AccessRule>& AccessRules();

// PERMISSION_DENIED names the peer, the method and the roles that may call it. Peers that are not
// verified may call every method that has a rule: their port is reachable from this host alone, or
// the user has allowed everybody (--insecure).
absl::Status CheckAccess(const PeerIdentity& peer, absl::string_view method);

struct PageRule {
  std::string path;  // such as "/metrics"; "/api/v1/jobs/" for all that begins with it
  bool everybody;    // even clients that show no certificate; then there are no roles
  std::vector<PeerRole> roles;
};
const std::vector<PageRule>& PageRules();

// The path of the rule for a page: itself, or the beginning that has a rule.
std::string PageOf(absl::string_view path);

// CheckAccess for the pages of admin ports. `page`: see PageOf. PERMISSION_DENIED from `peer`, which means that the client
// has shown no certificate that names a role, still leaves it the public pages.
absl::Status CheckPageAccess(const absl::StatusOr<PeerIdentity>& peer, absl::string_view page);

// Whether a method or page has a rule.
bool HasAccessRule(absl::string_view method_or_path);

}  // namespace sluice
