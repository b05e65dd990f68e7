// A certificate authority for development: makes and replaces the certificates of a cluster.
//
// Thread safety: free functions.
// Format: PEM; ECDSA P-256 keys, SHA-256 signatures, X.509 v3.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/peer_identity.h"
#include "common/security/tls_files.h"

namespace sluice {

struct CertAuthorityOptions {
  std::string folder;  // is made when it is missing
  absl::Time not_before;
  absl::Time not_after;
};

// Makes the folder, with mode 0700, unless it exists. INVALID_ARGUMENT, with the owner, the mode
// and the fix: somebody else could replace what is in it, because it belongs to a user other than
// this one and root, or because its group or others may write to it.
absl::Status MakeKeyFolder(const std::string& folder);

// Makes `folder`/ca.pem and `folder`/ca.key, unless both exist: then further certificates can be
// made with them. Keys have mode 0600. Removes the unfinished files of killed processes.
// INVALID_ARGUMENT names the file: only one of the two exists, or they do not belong together; see
// also MakeKeyFolder. Other codes: the folder cannot be written.
absl::Status MakeAuthority(const CertAuthorityOptions& options);

// When the certificate of the CA ends. Peers refuse every certificate of the CA from then on, even
// one that ends later.
// REQUIRES: MakeAuthority has returned OK for the folder.
absl::StatusOr<absl::Time> EndOfAuthority(const std::string& folder);

// The files `folder`/STEM.pem, `folder`/STEM.key and `folder`/ca.pem. The stem of a role is its
// name, such as "worker"; that of the CA is "ca".
TlsFiles FilesOf(const std::string& folder, const std::string& stem);

// The host names and IP addresses in the certificate that MakeCertificate would replace. None: the
// role has no certificate yet. INVALID_ARGUMENT names the file: it cannot be read, another CA has
// signed it, it has other names than MakeCertificate would give it, its key is missing, or there is
// a key that cannot be read. All hosts are printable ASCII text.
// REQUIRES: MakeAuthority has returned OK for the folder.
absl::StatusOr<std::optional<std::vector<std::string>>> HostsOfCertificate(
    const std::string& folder, PeerRole role);

// The files *.pem in the folder with certificates that are neither of a CA nor those of the roles,
// such as certificates of ranks. Sorted.
std::vector<std::string> OtherCertificates(const std::string& folder);

// Signs a certificate for any process of the role with the CA of the folder, and writes it as
// FilesOf(folder, PeerRoleName(role)), by a rename. `hosts`: DNS names and IP addresses among its
// alternative names. It is for the key of the role, which is made if there is none. An existing key
// stays, so a process that watches the files finds a pair that fits at any time, also when this one
// dies. INVALID_ARGUMENT: the key cannot be read. ABORTED: another process has made the key
// meanwhile.
// REQUIRES: MakeAuthority has returned OK for the folder.
absl::Status MakeCertificate(const CertAuthorityOptions& options, PeerRole role,
                             const std::vector<std::string>& hosts);

}  // namespace sluice
