// Who is at the other end of a connection: the role and the name that its certificate gives it.
//
// A certificate names its owner by a URI in its subject alternative names:
//
//   spiffe://<trust domain>/sluice/<role>[/<name>]      role: worker, pserver, scheduler, operator
//
// The name of a worker or pserver is the rank that it may have; without a name it may have any. The
// trust domain may be anything, because only one CA is trusted.
//
// Thread safety: plain data and pure functions.
// Source: the SPIFFE ID standard (URI form).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

enum class PeerRole { kWorker, kPserver, kScheduler, kOperator };
inline constexpr PeerRole kPeerRoles[] = {PeerRole::kWorker, PeerRole::kPserver,
                                          PeerRole::kScheduler, PeerRole::kOperator};

const char* PeerRoleName(PeerRole role);

struct PeerIdentity {
  // False for a connection without TLS: the peer is whatever it says it is.
  bool verified = false;
  PeerRole role = PeerRole::kOperator;
  std::string name;
  std::string address;  // host:port of the connection, for messages; empty: not known

  // "worker 3", "pserver (any rank)", "unverified".
  std::string ToString() const;
};

// The URI of a certificate for this role and name.
std::string PeerUri(PeerRole role, absl::string_view name);

// Returns the verified identity among the URIs of a certificate. URIs of other programs are
// ignored. PERMISSION_DENIED when there is no such URI, more than one, or its role is unknown.
absl::StatusOr<PeerIdentity> PeerOfUris(const std::vector<std::string>& uris);

// PERMISSION_DENIED when the peer's certificate is for another role, or for another rank.
// Unverified peers may be anything.
absl::Status CheckPeer(const PeerIdentity& peer, PeerRole role, uint32_t rank);

}  // namespace sluice
