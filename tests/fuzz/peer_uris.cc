// Reads the URIs of a certificate, one a line.
//
// Checks: what is accepted is exactly the URI that this role and name have, and it allows no other
// role.
#include <algorithm>

#include "absl/strings/str_split.h"
#include "common/security/access_rules.h"
#include "common/security/peer_identity.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr char kScheme[] = "spiffe://";

// What follows the trust domain: "/sluice/worker" of "spiffe://d/sluice/worker".
std::string PathOf(const std::string& uri) {
  const size_t slash = uri.find('/', sizeof(kScheme) - 1);
  return slash == std::string::npos ? "" : uri.substr(slash);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  const std::vector<std::string> uris =
      absl::StrSplit(absl::string_view(reinterpret_cast<const char*>(data), size), '\n');
  const absl::StatusOr<PeerIdentity> peer = PeerOfUris(uris);
  if (!peer.ok()) {
    FUZZ_CHECK(peer.status().code() == absl::StatusCode::kPermissionDenied);
    return 0;
  }
  FUZZ_CHECK(peer->verified);
  const std::string path = PathOf(PeerUri(peer->role, peer->name));
  FUZZ_CHECK(std::count_if(uris.begin(), uris.end(), [&](const std::string& uri) {
               return absl::StartsWith(uri, kScheme) && PathOf(uri) == path;
             }) == 1);
  for (const PeerRole role : kPeerRoles) {
    FUZZ_CHECK(role == peer->role || !CheckPeer(*peer, role, 0).ok());
  }
  FUZZ_CHECK(!peer->ToString().empty());
  return 0;
}
