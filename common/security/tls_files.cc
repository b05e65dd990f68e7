#include "common/security/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/security/peer_identity.h"
#include "common/security/pem_reader.h"

namespace sluice {
namespace {

using Store = std::unique_ptr<X509_STORE, OpensslFree<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, OpensslFree<X509_STORE_CTX_free>>;

absl::Status Wrong(const std::string& flag, const std::string& file, const std::string& what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", file, " ", what));
}

absl::StatusOr<OpenFile> Open(const std::string& flag, const std::string& path) {
  OpenFile file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return Wrong(flag, path, "cannot be read; give a PEM file");
  return file;
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::string& flag,
                                                          const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const auto file, Open(flag, path));
  std::vector<Certificate> all;
  while (X509* const one = PEM_read_X509(file.get(), nullptr, nullptr, nullptr))
    all.emplace_back(one);
  ERR_clear_error();  // the end of the file is an error
  if (all.empty()) return Wrong(flag, path, "holds no certificate in PEM form");
  return all;
}

absl::Status Missing(const std::string& flag, absl::string_view needs) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " is missing: ", needs));
}

// The chain of `files`, whose key belongs to its first certificate. `flags`: the beginning of the
// names of the flags.
absl::StatusOr<std::vector<Certificate>> ReadOwnCertificate(const TlsFiles& files,
                                                            const std::string& flags) {
  const std::string key_flag = flags + "key";
  SLUICE_ASSIGN_OR_RETURN(auto chain, ReadCertificates(flags + "cert", files.cert));
  SLUICE_ASSIGN_OR_RETURN(const auto key_file, Open(key_flag, files.key));
  const PrivateKey key = ReadPrivateKey(key_file.get());
  if (key == nullptr)
    return Wrong(key_flag, files.key, "holds no private key in PEM form without a password");
  struct stat at = {};
  // Looks at the file that was read: the name may lead to another one by now.
  if (fstat(fileno(key_file.get()), &at) == 0 && (at.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return Wrong(key_flag, files.key, "may be read or written by other users; run chmod 600 on it");
  }
  if (X509_check_private_key(chain[0].get(), key.get()) != 1)
    return Wrong(key_flag, files.key, absl::StrCat("is not the key of ", files.cert));
  return chain;
}

std::vector<std::string> UrisOf(X509* certificate) {
  std::vector<std::string> uris;
  const GeneralNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      ASN1_STRING_length(uri));
  }
  return uris;
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  constexpr char kNeeds[] =
      "TLS needs a certificate, its key and the CA; give --tls_cert, --tls_key and --tls_ca, or "
      "none of them";
  if (files.cert.empty()) return Missing("tls_cert", kNeeds);
  if (files.key.empty()) return Missing("tls_key", kNeeds);
  if (files.ca.empty()) return Missing("tls_ca", kNeeds);
  SLUICE_ASSIGN_OR_RETURN(const auto chain, ReadOwnCertificate(files, "tls_"));
  SLUICE_ASSIGN_OR_RETURN(const auto trusted, ReadCertificates("tls_ca", files.ca));

  const Store store(X509_STORE_new());
  for (const Certificate& ca : trusted) X509_STORE_add_cert(store.get(), ca.get());
  STACK_OF(X509)* const intermediate = sk_X509_new_null();
  // Intermediate certificates help to build the chain. Only those of --tls_ca are trusted.
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(intermediate, chain[i].get());
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), intermediate);
  const bool valid = X509_verify_cert(context.get()) == 1;
  const char* const why = X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
  // Frees the list alone; `chain` owns the certificates.
  sk_X509_free(intermediate);
  if (!valid) {
    return Wrong("tls_cert", files.cert,
                 absl::StrCat("is not valid under ", files.ca, ": ", why,
                              "; give a certificate that this CA has signed"));
  }
  if (const auto peer = OwnerOf(chain[0].get()); !peer.ok())
    return Wrong("tls_cert", files.cert, absl::StrCat("is refused: ", peer.status().message()));
  // Every process is a server to some and a client of others.
  if (X509_check_purpose(chain[0].get(), X509_PURPOSE_SSL_SERVER, 0) != 1 ||
      X509_check_purpose(chain[0].get(), X509_PURPOSE_SSL_CLIENT, 0) != 1) {
    return Wrong("tls_cert", files.cert,
                 "may not be used by both servers and clients of TLS; give one with both extended "
                 "key usages, or with none");
  }
  return absl::OkStatus();
}

absl::Status CheckServiceFiles(const TlsFiles& files, const std::string& flags) {
  if (files.ca.empty()) {
    return Missing(flags + "ca",
                   "a certificate of the server is believed only if it is signed by a "
                   "CA that is known; give the CA's file");
  }
  SLUICE_RETURN_IF_ERROR(ReadCertificates(flags + "ca", files.ca).status());
  if (files.cert.empty() && files.key.empty()) return absl::OkStatus();
  for (const auto& [name, file] : {std::make_pair("cert", files.cert), {"key", files.key}}) {
    if (file.empty())
      return Missing(flags + name, "give the certificate and its key, or none of the two");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto chain, ReadOwnCertificate(files, flags));
  // The service decides whom it trusts. Only certificates that would fail everywhere are refused
  // here.
  if (X509_cmp_current_time(X509_get0_notAfter(chain[0].get())) < 0)
    return Wrong(flags + "cert", files.cert, "has expired; give a new one");
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> EndOf(const TlsFiles& files) {
  SLUICE_ASSIGN_OR_RETURN(const auto chain, ReadOwnCertificate(files, "tls_"));
  absl::Time end = absl::InfiniteFuture();
  for (const Certificate& certificate : chain) {
    const std::optional<absl::Time> one = EndOf(certificate.get());
    if (!one.has_value()) return absl::InvalidArgumentError("the certificate's end is not a time");
    end = std::min(end, *one);
  }
  return end;
}

std::optional<absl::Time> EndOf(const X509* certificate) {
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return std::nullopt;
  return absl::FromTM(end, absl::UTCTimeZone());
}

absl::StatusOr<PeerIdentity> OwnerOf(const TlsFiles& files) {
  SLUICE_ASSIGN_OR_RETURN(const auto chain, ReadCertificates("tls_cert", files.cert));
  return OwnerOf(chain[0].get());
}

absl::StatusOr<PeerIdentity> OwnerOf(X509* certificate) { return PeerOfUris(UrisOf(certificate)); }

}  // namespace sluice
