#include "common/security/peer_verifier.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <string>
#include <vector>

namespace sluice {

absl::StatusOr<PeerIdentity> PeerVerifier::PeerOf(const grpc::AuthContext& caller) const {
  if (!tls_) return PeerIdentity();
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : caller.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME))
    uris.emplace_back(uri.data(), uri.size());
  return PeerOfUris(uris);
}

}  // namespace sluice
