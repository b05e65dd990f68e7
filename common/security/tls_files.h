// The files that make up one process's side of mutual TLS.
#pragma once

#include <openssl/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/peer_identity.h"

namespace sluice {

// PEM files. All empty: no TLS.
struct TlsFiles {
  std::string cert;  // the certificate of this process, followed by intermediate ones
  std::string key;   // its private key
  std::string ca;    // the CA that has signed the certificates of all processes of the cluster

  bool given() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

// INVALID_ARGUMENT names the flag, the file and the fix: a file is missing or cannot be read, holds
// no certificate or key, the key does not belong to the certificate, other users may read it, the
// certificate has expired, is not signed by the CA, is not for servers and clients alike, or does
// not name a role of Sluice.
absl::Status CheckTlsFiles(const TlsFiles& files);

// The same for the files of a client of a service that is not one of the cluster, such as etcd: the
// CA that has signed the service's certificate, and, unless the service asks for none, a
// certificate that it trusts, whoever has signed that, with its key. `flags`: the beginning of the
// names of the flags, such as "etcd_".
absl::Status CheckServiceFiles(const TlsFiles& files, const std::string& flags);

// The time at which the certificate of this process ends, or an intermediate one, if it ends
// before. INVALID_ARGUMENT: the file cannot be read, or the key does not belong to the certificate.
absl::StatusOr<absl::Time> EndOf(const TlsFiles& files);
// The time at which this certificate ends. None when it does not say it as a time.
std::optional<absl::Time> EndOf(const X509* certificate);

// The owner of the certificate. PERMISSION_DENIED: see PeerOfUris.
absl::StatusOr<PeerIdentity> OwnerOf(const TlsFiles& files);
absl::StatusOr<PeerIdentity> OwnerOf(X509* certificate);

}  // namespace sluice
