#include "common/security/issued_certificates.h"

#include <arpa/inet.h>
#include <openssl/err.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/security/openssl_types.h"
#include "common/security/pem_reader.h"
#include "common/security/tls_files.h"

namespace sluice {
namespace {

constexpr absl::string_view kCertificateSuffix = ".pem";

// The text of an address with 4 or 16 octets; else empty.
std::string AddressText(absl::string_view octets) {
  char text[INET6_ADDRSTRLEN] = "";
  const int family = octets.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
  if (family == AF_INET6 && octets.size() != sizeof(in6_addr)) return "";
  return inet_ntop(family, octets.data(), text, sizeof(text)) == nullptr ? "" : text;
}

// What MakeCertificate needs to give a certificate the same alternative names. None if it would
// give it others.
std::optional<CertificateRequest> RequestOf(X509* certificate) {
  const auto owner = OwnerOf(certificate);
  if (!owner.ok()) return std::nullopt;
  CertificateRequest request = {owner->role, owner->name, {}};
  const GeneralNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int type = 0;
    const auto* const value = static_cast<const ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &type));
    if (type != GEN_URI && type != GEN_DNS && type != GEN_IPADD) return std::nullopt;
    const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                           static_cast<size_t>(ASN1_STRING_length(value)));
    if (type == GEN_URI) {
      if (text != PeerUri(request.role, request.name)) return std::nullopt;
    } else {
      request.hosts.push_back(type == GEN_DNS ? text : AddressText(text));
    }
  }
  if (!CheckCertificateRequest(request).ok()) return std::nullopt;
  return request;
}

IssuedCertificate Look(const std::string& folder, const std::string& stem, X509* authority) {
  const TlsFiles files = FilesOf(folder, stem);
  IssuedCertificate found;
  found.stem = stem;
  const Certificate certificate = ReadCertificate(files.cert);
  if (certificate == nullptr) {
    found.obstacle = "cannot be read as a certificate in PEM form";
    return found;
  }
  found.end = EndOf(certificate.get());
  if (X509_verify(certificate.get(), X509_get0_pubkey(authority)) != 1) {
    found.obstacle = absl::StrCat("is not signed by ", files.ca);
    return found;
  }
  std::optional<CertificateRequest> request = RequestOf(certificate.get());
  if (!request.has_value()) {
    found.obstacle = "has other names than a role and hosts";
  } else if (!Env::Real()->Exists(files.key)) {
    found.obstacle = absl::StrCat("has lost its key ", files.key);
  } else if (ReadPrivateKey(files.key) == nullptr) {
    found.obstacle = absl::StrCat("has a key that cannot be read, ", files.key);
  } else {
    found.request = *std::move(request);
  }
  return found;
}

}  // namespace

absl::StatusOr<std::vector<IssuedCertificate>> FindIssuedCertificates(const std::string& folder) {
  const std::string authority_file = FilesOf(folder, "ca").cert;
  const Certificate authority = ReadCertificate(authority_file);
  if (authority == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        absl::StrCat(authority_file, " cannot be read as a certificate in PEM form"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, Env::Real()->List(folder));
  std::vector<IssuedCertificate> all;
  for (absl::string_view name : names) {
    if (!absl::ConsumeSuffix(&name, kCertificateSuffix) || name.empty() || name == "ca") continue;
    all.push_back(Look(folder, std::string(name), authority.get()));
  }
  ERR_clear_error();
  // Names are sorted with their suffix.
  std::sort(all.begin(), all.end(),
            [](const IssuedCertificate& a, const IssuedCertificate& b) { return a.stem < b.stem; });
  return all;
}

}  // namespace sluice
