// The one place that makes gRPC credentials: mutual TLS, or plain TCP.
//
// With TLS, both sides show a certificate that the cluster's CA has signed. The server checks the
// caller's role for each method (PeerOf, CheckAccess). A client refuses a server whose
// certificate is not one of the role that it has called, or names another rank than the one that it
// has called. Host names are not compared: a certificate stands for a role, or for one rank of it,
// on whatever host or address it runs.
//
// A service that is not one of the cluster, such as etcd, has no role. Its certificate must be for
// the host that was called, and signed by the CA that was given for this service.
//
// With the first credentials that have TLS, all TLS sessions of the process follow two rules that
// gRPC does not let its users set:
// - No session is resumed, neither from a ticket nor from a server's memory. OpenSSL would take the
//   client's certificate, and that it was valid, from the earlier session. So whoever has a ticket
//   would be let in without the key, and after the certificate has expired.
// - TLS 1.3 prefers AES-128-GCM, unless the administrator has set ciphers in OpenSSL's
//   configuration file. gRPC asks for it first, but its call to OpenSSL sets the ciphers of TLS 1.2
//   only, and OpenSSL's order begins with AES-256-GCM. Both are secure; the larger key costs about
//   a sixth more processor time a byte, and the cipher is most of what TLS costs a job.
//
// Changed files are noticed within `reload_every`. New connections use them, open ones go on.
//
// Thread safety: immutable once it is shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/peer_identity.h"
#include "common/security/tls_files.h"

namespace grpc {
class AuthContext;
class ChannelCredentials;
class ServerCredentials;
namespace experimental {
class CertificateProviderInterface;
}
}  // namespace grpc

namespace sluice {

class GrpcCredentials {
 public:
  // Without TLS.
  GrpcCredentials() = default;
  // With TLS if files are given. INVALID_ARGUMENT: see CheckTlsFiles.
  static absl::StatusOr<GrpcCredentials> Create(const TlsFiles& files,
                                                absl::Duration reload_every = absl::Seconds(10));

  bool tls() const { return provider_ != nullptr; }
  // The owner of this process's certificate when it was first read. Not verified without TLS.
  const PeerIdentity& self() const { return self_; }
  std::shared_ptr<grpc::ServerCredentials> ForServer() const;
  // Who calls a server with these credentials. With TLS, the certificate says it. Without TLS,
  // nobody is verified; who may connect is decided before (local_user_gate.h). PERMISSION_DENIED:
  // the caller's certificate names no role (see PeerOfUris).
  absl::StatusOr<PeerIdentity> PeerOf(const grpc::AuthContext& caller) const;
  // For connections to servers of this role. With a rank, a certificate that names a rank must name
  // this one; one without a rank is for all.
  std::shared_ptr<grpc::ChannelCredentials> ForClientOf(
      PeerRole server, std::optional<uint32_t> rank = std::nullopt) const;

  // On loopback without TLS, servers then serve, and clients call, every user (ServerGuard).
  void ServeAnyLocalUser() { serves_any_local_user_ = true; }
  bool serves_any_local_user() const { return serves_any_local_user_; }

 private:
  PeerIdentity self_;
  bool serves_any_local_user_ = false;
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
};

// For connections to a service that is not one of the cluster.
class ServiceCredentials {
 public:
  // Without TLS.
  ServiceCredentials() = default;
  // With TLS if files are given. INVALID_ARGUMENT: see CheckServiceFiles; `flags` as there.
  static absl::StatusOr<ServiceCredentials> Create(const TlsFiles& files, const std::string& flags,
                                                   absl::Duration reload_every = absl::Seconds(10));

  bool tls() const { return provider_ != nullptr; }
  std::shared_ptr<grpc::ChannelCredentials> ForClient() const;

 private:
  bool shows_certificate_ = false;
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
};

}  // namespace sluice
