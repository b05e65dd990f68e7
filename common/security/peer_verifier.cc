#include "common/security/peer_verifier.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <unistd.h>

#include <vector>

#include "common/base/status_macros.h"
#include "common/config/address.h"

namespace sluice {

PeerVerifier::PeerVerifier(const GrpcCredentials& credentials, const std::string& address, int port)
    : tls_(credentials.tls()) {
  const absl::StatusOr<Address> bound = ParseAddress(address);
  // Off loopback, --insecure has allowed everybody.
  if (tls_ || credentials.serves_any_local_user() || !bound.ok() || !IsLoopback(bound->host))
    return;
  local_.emplace(bound->host, port, geteuid());
}

absl::StatusOr<PeerIdentity> PeerVerifier::PeerOf(const grpc::AuthContext& caller,
                                                  const std::string& peer) const {
  if (local_.has_value()) SLUICE_RETURN_IF_ERROR(local_->Check(peer));
  if (!tls_) return PeerIdentity();
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : caller.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME))
    uris.emplace_back(uri.data(), uri.size());
  return PeerOfUris(uris);
}

}  // namespace sluice
