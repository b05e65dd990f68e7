#include "common/security/grpc_credentials.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

namespace tls = grpc::experimental;

// Accepts certificates of one role, and of one rank when that is known and the certificate names
// one. gRPC has checked the chain before.
class RoleVerifier : public tls::ExternalCertificateVerifier {
 public:
  RoleVerifier(PeerRole role, std::optional<uint32_t> rank) : role_(role), rank_(rank) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : request->uri_names())
      uris.emplace_back(uri.data(), uri.size());
    const absl::StatusOr<PeerIdentity> peer = PeerOfUris(uris);
    std::string refused;
    if (!peer.ok()) {
      refused = std::string(peer.status().message());
    } else if (peer->role != role_) {
      refused = absl::StrCat("the certificate of the server is one for ", peer->ToString(),
                             ", not for a ", PeerRoleName(role_));
    } else if (rank_.has_value() && !CheckPeer(*peer, role_, *rank_).ok()) {
      refused =
          absl::StrCat("the certificate of the server is one for ", peer->ToString(), ", not for ",
                       PeerRoleName(role_), " ", *rank_, ", which should serve there");
    }
    if (!refused.empty()) *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, refused);
    return true;  // decided at once
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const PeerRole role_;
  const std::optional<uint32_t> rank_;
};

constexpr char kPreferredCiphers[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

// The names of the ciphers for TLS 1.3 that a session offers, in its order.
std::string CiphersOf(const SSL* session) {
  std::string names;
  const STACK_OF(SSL_CIPHER)* const ciphers = SSL_get_ciphers(session);
  for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); ++i) {
    const SSL_CIPHER* const cipher = sk_SSL_CIPHER_value(ciphers, i);
    if (std::strcmp(SSL_CIPHER_get_version(cipher), "TLSv1.3") != 0) continue;
    absl::StrAppend(&names, names.empty() ? "" : ":", SSL_CIPHER_get_name(cipher));
  }
  return names;
}

// Makes the session neither issue nor accept tickets, and keeps it out of the cache (TLS 1.2).
void ForbidResumption(SSL* session) {
  SSL_set_options(session, SSL_OP_NO_TICKET);
  SSL_set_num_tickets(session, 0);
  SSL_CTX* const context = SSL_get_SSL_CTX(session);
  if (SSL_CTX_get_session_cache_mode(context) != SSL_SESS_CACHE_OFF)
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}

void OnNewSession(void* new_session, void*, CRYPTO_EX_DATA*, int, long, void*) {
  SSL* const session = static_cast<SSL*>(new_session);
  ForbidResumption(session);
  if (CiphersOf(session) == OSSL_default_ciphersuites())
    SSL_set_ciphersuites(session, kPreferredCiphers);
}

// From now on, all new sessions of this process follow the rules.
void SetTlsSessionRules() {
  // OpenSSL calls this function for each session.
  [[maybe_unused]] static const int index =
      SSL_get_ex_new_index(0, nullptr, &OnNewSession, nullptr, nullptr);
}

unsigned SecondsOf(absl::Duration reload_every) {
  return static_cast<unsigned>(std::max<int64_t>(1, absl::ToInt64Seconds(reload_every)));
}

}  // namespace

absl::StatusOr<GrpcCredentials> GrpcCredentials::Create(const TlsFiles& files,
                                                        absl::Duration reload_every) {
  GrpcCredentials credentials;
  if (!files.given()) return credentials;
  SLUICE_RETURN_IF_ERROR(CheckTlsFiles(files));
  SLUICE_ASSIGN_OR_RETURN(credentials.self_, OwnerOf(files));
  SetTlsSessionRules();
  credentials.provider_ = std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key, files.cert, files.ca, SecondsOf(reload_every));
  return credentials;
}

std::shared_ptr<grpc::ServerCredentials> GrpcCredentials::ForServer() const {
  if (!tls()) return grpc::InsecureServerCredentials();
  tls::TlsServerCredentialsOptions options(provider_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

absl::StatusOr<PeerIdentity> GrpcCredentials::PeerOf(const grpc::AuthContext& caller) const {
  if (!tls()) return PeerIdentity();
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : caller.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME))
    uris.emplace_back(uri.data(), uri.size());
  return PeerOfUris(uris);
}

std::shared_ptr<grpc::ChannelCredentials> GrpcCredentials::ForClientOf(
    PeerRole server, std::optional<uint32_t> rank) const {
  if (!tls()) return grpc::InsecureChannelCredentials();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<RoleVerifier>(server, rank));
  options.set_check_call_host(false);
  return tls::TlsCredentials(options);
}

absl::StatusOr<ServiceCredentials> ServiceCredentials::Create(const TlsFiles& files,
                                                              const std::string& flags,
                                                              absl::Duration reload_every) {
  ServiceCredentials credentials;
  if (!files.given()) return credentials;
  SLUICE_RETURN_IF_ERROR(CheckServiceFiles(files, flags));
  credentials.shows_certificate_ = !files.cert.empty();
  const unsigned seconds = SecondsOf(reload_every);
  if (credentials.shows_certificate_) {
    credentials.provider_ = std::make_shared<tls::FileWatcherCertificateProvider>(
        files.key, files.cert, files.ca, seconds);
  } else {
    credentials.provider_ =
        std::make_shared<tls::FileWatcherCertificateProvider>(files.ca, seconds);
  }
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> ServiceCredentials::ForClient() const {
  if (!tls()) return grpc::InsecureChannelCredentials();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider_);
  options.watch_root_certs();
  if (shows_certificate_) options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(std::make_shared<tls::HostNameCertificateVerifier>());
  return tls::TlsCredentials(options);
}

}  // namespace sluice
