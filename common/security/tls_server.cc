#include "common/security/tls_server.h"

#include <openssl/err.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

using Bio = std::unique_ptr<BIO, OpensslFree<BIO_free>>;

// The contents of the three files.
struct TlsText {
  std::string cert, key, ca;
};

absl::StatusOr<TlsText> ReadFiles(Env* env, const TlsFiles& files) {
  TlsText text;
  SLUICE_ASSIGN_OR_RETURN(text.cert, env->ReadFile(files.cert));
  SLUICE_ASSIGN_OR_RETURN(text.key, env->ReadFile(files.key));
  SLUICE_ASSIGN_OR_RETURN(text.ca, env->ReadFile(files.ca));
  return text;
}

Bio Over(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The next certificate of a PEM file; null at its end.
Certificate NextCertificate(BIO* pem) {
  return Certificate(PEM_read_bio_X509(pem, nullptr, nullptr, nullptr));
}

bool UseCertificate(SSL_CTX* context, const TlsText& text) {
  const Bio chain = Over(text.cert);
  const Certificate own = NextCertificate(chain.get());
  if (own == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1) return false;
  while (const Certificate intermediate = NextCertificate(chain.get())) {
    if (SSL_CTX_add1_chain_cert(context, intermediate.get()) != 1) return false;
  }
  const Bio pem = Over(text.key);
  // Without this callback, OpenSSL would ask on the terminal and hold up the server.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  const PrivateKey key(PEM_read_bio_PrivateKey(pem.get(), nullptr, no_password, nullptr));
  // Using the key checks that it belongs to the certificate.
  return key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

bool TrustAuthorities(SSL_CTX* context, const TlsText& text) {
  const Bio pem = Over(text.ca);
  int authorities = 0;
  while (const Certificate ca = NextCertificate(pem.get())) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca.get()) != 1 ||
        // Named in the handshake, so that clients with several certificates show the right one.
        SSL_CTX_add_client_CA(context, ca.get()) != 1) {
      return false;
    }
    ++authorities;
  }
  return authorities > 0;
}

void SetRules(SSL_CTX* context) {
  // Sessions are never resumed: a resumed one would be let in without a look at the present files.
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  // For sockets that do not block: a write may end early, and go on from another buffer.
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A certificate that is shown must be valid, but none is needed: probes have none.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsServer>> TlsServer::Create(Options options) {
  SLUICE_RETURN_IF_ERROR(CheckTlsFiles(options.files));
  std::unique_ptr<TlsServer> server(new TlsServer(std::move(options)));
  SLUICE_ASSIGN_OR_RETURN(const PeerIdentity self, OwnerOf(server->options_.files));
  server->role_ = self.role;
  SLUICE_RETURN_IF_ERROR(server->Load());
  return server;
}

absl::Status TlsServer::Load() {
  // Also when the files are those in use: their mode, or the time, may have changed.
  SLUICE_RETURN_IF_ERROR(CheckTlsFiles(options_.files));
  SLUICE_ASSIGN_OR_RETURN(const PeerIdentity self, OwnerOf(options_.files));
  if (self.role != role_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--tls_cert: ", options_.files.cert, " is now one for ", self.ToString(),
        ", and this process is a ", PeerRoleName(role_), "; give it a certificate for its role"));
  }
  SLUICE_ASSIGN_OR_RETURN(const absl::Time end, EndOf(options_.files));
  SLUICE_ASSIGN_OR_RETURN(const TlsText text, ReadFiles(options_.env, options_.files));
  std::string parts;
  for (const std::string* part : {&text.cert, &text.key, &text.ca})
    // With the lengths: bytes that move from one file to the next change the digest.
    absl::StrAppend(&parts, part->size(), ":", *part);
  const std::string digest = Sha256Hex(parts);
  MutexLock lock(&mutex_);
  // Also when the files are bad, so that each connection does not read them again.
  looked_at_ = options_.clock->Now();
  if (digest == digest_) return absl::OkStatus();
  Context context(SSL_CTX_new(TLS_server_method()));
  const bool made = context != nullptr && UseCertificate(context.get(), text) &&
                    TrustAuthorities(context.get(), text);
  ERR_clear_error();  // the end of a PEM file is an error
  if (!made) {
    return absl::InvalidArgumentError(absl::StrCat("--tls_cert: ", options_.files.cert, ", ",
                                                   options_.files.key, " and ", options_.files.ca,
                                                   " do not fit together"));
  }
  SetRules(context.get());
  context_ = std::move(context);
  certificate_end_ = end;
  digest_ = digest;
  return absl::OkStatus();
}

TlsSession TlsServer::NewSession() {
  bool look = false;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.clock->Now();
    look = now - looked_at_ >= options_.reload_every;
    if (look) looked_at_ = now;  // other threads use what there is meanwhile
  }
  if (look) Tell(Load());  // the next look may find files that fit together
  MutexLock lock(&mutex_);
  return TlsSession(SSL_new(context_.get()));  // shares the context
}

void TlsServer::Tell(const absl::Status& loaded) {
  std::string line;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.clock->Now();
    const std::string trouble(loaded.message());
    const bool changed = trouble != trouble_;
    if (!changed && (loaded.ok() || now - told_at_ < options_.tell_every)) return;
    line = loaded.ok() ? absl::StrCat("the certificate ", options_.files.cert, " is used again")
                       : absl::StrCat(
                             "the certificate of before stays in use, because the new one "
                             "cannot be used: ",
                             trouble);
    trouble_ = trouble;
    told_at_ = now;
  }
  if (options_.log) options_.log(line);
}

absl::Time TlsServer::certificate_end() const {
  MutexLock lock(&mutex_);
  return certificate_end_;
}

absl::StatusOr<PeerIdentity> PeerOf(const SSL& session) {
  X509* const certificate = SSL_get0_peer_certificate(&session);
  if (certificate == nullptr)
    return absl::PermissionDeniedError("the client has shown no certificate");
  return OwnerOf(certificate);
}

}  // namespace sluice
