// Says who the callers of one server are.
//
// With TLS, the certificate says it. Without TLS, nobody is verified; who may connect is decided
// before (local_user_gate.h).
//
// Thread safety: immutable.
#pragma once

#include "absl/status/statusor.h"
#include "common/security/grpc_credentials.h"
#include "common/security/peer_identity.h"

namespace grpc {
class AuthContext;
}

namespace sluice {

class PeerVerifier {
 public:
  explicit PeerVerifier(const GrpcCredentials& credentials) : tls_(credentials.tls()) {}

  // PERMISSION_DENIED: the caller's certificate names no role (see PeerOfUris).
  absl::StatusOr<PeerIdentity> PeerOf(const grpc::AuthContext& caller) const;

 private:
  const bool tls_;
};

}  // namespace sluice
