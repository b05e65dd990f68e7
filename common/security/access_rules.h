// Which roles may call which method. A method without a rule may be called by nobody.
//
// A rule says who may call; what the caller may say in the call (its rank, its job) is checked
// where the call is handled.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
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

}  // namespace sluice
