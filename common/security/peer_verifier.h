// Says who the callers of one server are, and keeps out those that it must not serve.
//
// With TLS, the certificate says it. Without TLS, nobody is verified, but a server that listens on
// a loopback address serves only processes of its own user and of root.
//
// Thread safety: immutable.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/grpc_credentials.h"
#include "common/security/local_peers.h"
#include "common/security/peer_identity.h"

namespace grpc {
class AuthContext;
}

namespace sluice {

class PeerVerifier {
 public:
  // For the server that has bound `address` (host:port), and got `port`.
  PeerVerifier(const GrpcCredentials& credentials, const std::string& address, int port);

  // `peer`: the caller's address, as gRPC gives it. PERMISSION_DENIED: its certificate names no
  // role (see PeerOfUris), or it belongs to another user of this host.
  absl::StatusOr<PeerIdentity> PeerOf(const grpc::AuthContext& caller,
                                      const std::string& peer) const;

 private:
  const bool tls_;
  std::optional<LocalPeers> local_;  // nothing: peers of every user are served
};

}  // namespace sluice
