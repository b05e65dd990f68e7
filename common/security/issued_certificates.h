// Finds the certificates in a CA's folder, with what it takes to make each of them again.
//
// Thread safety: free functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/cert_authority.h"

namespace sluice {

struct IssuedCertificate {
  std::string stem;               // of its files: FilesOf(folder, stem)
  std::optional<absl::Time> end;  // none: the file cannot be read
  // Why the certificate cannot be renewed, such as "is not signed by certs/ca.pem". Empty: it can.
  std::string obstacle;
  CertificateRequest request;  // empty if there is an obstacle
};

// The certificates in the files STEM.pem of `folder`, sorted by stem, without the CA's own.
// INVALID_ARGUMENT: ca.pem cannot be read. Other codes: the folder cannot be listed.
absl::StatusOr<std::vector<IssuedCertificate>> FindIssuedCertificates(const std::string& folder);

}  // namespace sluice
