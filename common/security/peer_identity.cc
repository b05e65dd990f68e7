#include "common/security/peer_identity.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"

namespace sluice {
namespace {

constexpr char kScheme[] = "spiffe://";
constexpr char kProgram[] = "sluice";
constexpr char kTrustDomain[] = "sluice";  // of the certificates that `sluice certs` makes

// The parts of the URI's path after the program's name; nothing for URIs of other programs.
std::optional<std::vector<std::string>> PathOf(absl::string_view uri) {
  if (!absl::StartsWith(uri, kScheme)) return std::nullopt;
  uri.remove_prefix(sizeof(kScheme) - 1);
  std::vector<std::string> parts = absl::StrSplit(uri, '/');
  if (parts.size() < 2 || parts[1] != kProgram) return std::nullopt;
  parts.erase(parts.begin(), parts.begin() + 2);
  return parts;
}

absl::Status Refused(absl::string_view uri, absl::string_view why) {
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate's URI '", Printable(std::string(uri)), "' ", why,
                   "; it must be spiffe://DOMAIN/sluice/ROLE or spiffe://DOMAIN/sluice/ROLE/NAME"));
}

}  // namespace

const char* PeerRoleName(PeerRole role) {
  switch (role) {
    case PeerRole::kWorker:
      return "worker";
    case PeerRole::kPserver:
      return "pserver";
    case PeerRole::kScheduler:
      return "scheduler";
    case PeerRole::kOperator:
      return "operator";
  }
  return "unknown";
}

std::string PeerIdentity::ToString() const {
  if (!verified) return "unverified";
  if (!name.empty()) return absl::StrCat(PeerRoleName(role), " ", Printable(name));
  const bool ranked = role == PeerRole::kWorker || role == PeerRole::kPserver;
  return absl::StrCat(PeerRoleName(role), ranked ? " (any rank)" : "");
}

std::string PeerUri(PeerRole role, absl::string_view name) {
  return absl::StrCat(kScheme, kTrustDomain, "/", kProgram, "/", PeerRoleName(role),
                      name.empty() ? "" : "/", name);
}

absl::StatusOr<PeerIdentity> PeerOfUris(const std::vector<std::string>& uris) {
  std::optional<PeerIdentity> found;
  for (const std::string& uri : uris) {
    const auto path = PathOf(uri);
    if (!path.has_value()) continue;
    // Two identities would let its owner be whichever suits.
    if (found.has_value()) return Refused(uri, "is a second one of Sluice");
    // Longer paths are refused and not cut: a later version may give them a meaning.
    if (path->empty() || path->size() > 2 || path->back().empty())
      return Refused(uri, "does not name a role");
    PeerIdentity peer;
    peer.verified = true;
    bool known = false;
    for (const PeerRole role : kPeerRoles) {
      if (path->front() != PeerRoleName(role)) continue;
      peer.role = role;
      known = true;
    }
    if (!known) return Refused(uri, "does not name a role of Sluice");
    if (path->size() == 2) peer.name = path->back();
    found = std::move(peer);
  }
  if (found.has_value()) return *std::move(found);
  return absl::PermissionDeniedError(
      "the certificate does not name a role of Sluice: it needs a URI spiffe://DOMAIN/sluice/ROLE "
      "among "
      "its subject alternative names (`sluice certs` makes such certificates)");
}

absl::Status CheckPeer(const PeerIdentity& peer, PeerRole role, uint32_t rank) {
  // Without TLS a name proves nothing, so that there is nothing to compare.
  if (!peer.verified) return absl::OkStatus();
  // As text: "01" is not the name of rank 1.
  if (peer.role == role && (peer.name.empty() || peer.name == absl::StrCat(rank)))
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate is one for ", peer.ToString(), ", and this peer claims to be ",
                   PeerRoleName(role), " ", rank, "; give it a certificate of that role and rank"));
}

}  // namespace sluice
