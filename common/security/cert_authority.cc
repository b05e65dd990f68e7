#include "common/security/cert_authority.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/security/pem_reader.h"
#include "common/security/unfinished_pem.h"

namespace sluice {
namespace {

using Bignum = std::unique_ptr<BIGNUM, OpensslFree<BN_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, OpensslFree<X509_EXTENSION_free>>;
using GeneralName = std::unique_ptr<GENERAL_NAME, OpensslFree<GENERAL_NAME_free>>;

constexpr char kAuthorityName[] = "Sluice development CA";
constexpr mode_t kKeyMode = 0600, kCertificateMode = 0644, kFolderMode = 0700;

struct Authority {
  Certificate certificate;
  PrivateKey key;
};

std::string CertificateOf(const std::string& folder, const std::string& stem) {
  return absl::StrCat(folder, "/", stem, ".pem");
}
std::string KeyOf(const std::string& folder, const std::string& stem) {
  return absl::StrCat(folder, "/", stem, ".key");
}

// OpenSSL fails here only when memory or random numbers run out, or when the host's openssl.cnf
// disables what is needed.
absl::Status OpensslError(absl::string_view operation) {
  char reason[256] = "";
  ERR_error_string_n(ERR_get_error(), reason, sizeof(reason));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("OpenSSL cannot ", operation, ": ", reason));
}

absl::Status Wrong(const std::string& file, absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(file, " ", what));
}

// Replaces the certificate by one rename. `new_key`: null when the certificate is for the key that
// the stem has. A new key never replaces another one, whose certificate may be in use. Both files
// are complete before the first one gets its name.
absl::Status WriteFiles(const std::string& folder, const std::string& stem, X509* certificate,
                        EVP_PKEY* new_key) {
  UnfinishedPem key_file(KeyOf(folder, stem), kKeyMode);
  UnfinishedPem certificate_file(CertificateOf(folder, stem), kCertificateMode);
  if (new_key != nullptr) {
    SLUICE_RETURN_IF_ERROR(key_file.Fill([&](FILE* file) {
      return PEM_write_PrivateKey(file, new_key, nullptr, nullptr, 0, nullptr, nullptr) == 1;
    }));
  }
  SLUICE_RETURN_IF_ERROR(
      certificate_file.Fill([&](FILE* file) { return PEM_write_X509(file, certificate) == 1; }));
  if (new_key != nullptr) SLUICE_RETURN_IF_ERROR(key_file.FinishNew());
  return certificate_file.Replace();
}

// Returns a certificate with everything but its issuer, extensions and signature. Its serial number
// is random and has 128 bits.
absl::StatusOr<Certificate> NewCertificate(const CertAuthorityOptions& options,
                                           const std::string& common_name, EVP_PKEY* key) {
  Certificate certificate(X509_new());
  X509* const x = certificate.get();
  const Bignum serial(BN_new());
  if (x == nullptr || serial == nullptr ||
      BN_rand(serial.get(), 128, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) != 1 ||
      BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(x)) == nullptr ||
      X509_set_version(x, X509_VERSION_3) != 1 || X509_set_pubkey(x, key) != 1 ||
      X509_NAME_add_entry_by_NID(X509_get_subject_name(x), NID_commonName, MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(common_name.data()),
                                 static_cast<int>(common_name.size()), -1, 0) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(x), absl::ToTimeT(options.not_before)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(x), absl::ToTimeT(options.not_after)) == nullptr) {
    return OpensslError("make a certificate");
  }
  return certificate;
}

// `value` is in the syntax of openssl.cnf, so it must not contain text from outside.
bool AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context = {};
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool AddName(int type, absl::string_view bytes, GENERAL_NAMES* names) {
  ASN1_STRING* const value =
      ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
  GeneralName name(GENERAL_NAME_new());
  if (value == nullptr || name == nullptr) {
    ASN1_STRING_free(value);
    return false;
  }
  GENERAL_NAME_set0_value(name.get(), type, value);  // takes the value
  if (ASN1_STRING_set(value, bytes.data(), static_cast<int>(bytes.size())) != 1 ||
      sk_GENERAL_NAME_push(names, name.get()) <= 0) {
    return false;
  }
  name.release();  // `names` has it
  return true;
}

bool AddHost(const std::string& host, GENERAL_NAMES* names) {
  unsigned char address[sizeof(in6_addr)];
  const char* const octets = reinterpret_cast<const char*>(address);
  if (inet_pton(AF_INET, host.c_str(), address) == 1)
    return AddName(GEN_IPADD, absl::string_view(octets, sizeof(in_addr)), names);
  if (inet_pton(AF_INET6, host.c_str(), address) == 1)
    return AddName(GEN_IPADD, absl::string_view(octets, sizeof(in6_addr)), names);
  return AddName(GEN_DNS, host, names);
}

bool AddAlternativeNames(PeerRole role, const std::vector<std::string>& hosts, X509* certificate) {
  const GeneralNames names(sk_GENERAL_NAME_new_null());
  if (names == nullptr || !AddName(GEN_URI, PeerUri(role, ""), names.get())) return false;
  for (const std::string& host : hosts) {
    if (!AddHost(host, names.get())) return false;
  }
  return X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), /*crit=*/0,
                           X509V3_ADD_DEFAULT) == 1;
}

// The text of an address with 4 or 16 octets; else empty.
std::string AddressText(absl::string_view octets) {
  char text[INET6_ADDRSTRLEN] = "";
  const int family = octets.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
  if (family == AF_INET6 && octets.size() != sizeof(in6_addr)) return "";
  return inet_ntop(family, octets.data(), text, sizeof(text)) == nullptr ? "" : text;
}

// Other text could change what a terminal shows.
bool IsHostText(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
}

// The inverse of AddAlternativeNames. None if the certificate has other names.
std::optional<std::vector<std::string>> ReadHosts(PeerRole role, X509* certificate) {
  const GeneralNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> hosts;
  bool named = false;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int type = 0;
    const auto* const value = static_cast<const ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &type));
    if (type != GEN_URI && type != GEN_DNS && type != GEN_IPADD) return std::nullopt;
    const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                           static_cast<size_t>(ASN1_STRING_length(value)));
    if (type == GEN_URI) {
      if (text != PeerUri(role, "")) return std::nullopt;
      named = true;
    } else {
      hosts.push_back(type == GEN_DNS ? text : AddressText(text));
      if (!IsHostText(hosts.back())) return std::nullopt;
    }
  }
  if (!named) return std::nullopt;
  return hosts;
}

absl::StatusOr<Authority> ReadAuthority(const std::string& folder) {
  const std::string certificate_path = CertificateOf(folder, "ca"), key_path = KeyOf(folder, "ca");
  Authority authority = {ReadCertificate(certificate_path), ReadPrivateKey(key_path)};
  if (authority.certificate == nullptr)
    return Wrong(certificate_path, "cannot be read as a certificate in PEM form");
  // A user who gives the folder of a server's certificate would otherwise get certificates that
  // nobody trusts.
  if (X509_check_ca(authority.certificate.get()) != 1)
    return Wrong(certificate_path, "is not the certificate of a CA; give another folder");
  if (authority.key == nullptr)
    return Wrong(key_path, "cannot be read as a private key in PEM form without a password");
  if (X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    return Wrong(key_path, absl::StrCat("is not the key of ", certificate_path,
                                        "; put the right key there, or give another folder"));
  }
  return authority;
}

struct StemKey {
  PrivateKey key;
  bool is_new = false;  // not yet written
};

// The key of the stem, or a new one if it has none.
absl::StatusOr<StemKey> KeyFor(const std::string& folder, const std::string& stem) {
  const std::string path = KeyOf(folder, stem);
  // An existing key is used again: copies of it may be on the hosts already.
  if (!Env::Real()->Exists(path)) {
    StemKey made = {PrivateKey(EVP_EC_gen("P-256")), true};
    if (made.key == nullptr) return OpensslError("make a key");
    return made;
  }
  StemKey kept = {ReadPrivateKey(path), false};
  if (kept.key == nullptr) {
    return Wrong(path,
                 "cannot be read as a private key in PEM form without a password; move it and its "
                 ".pem file away to have a new pair made");
  }
  return kept;
}

// Signs a certificate for itself as the CA and writes it.
absl::Status WriteAuthority(const CertAuthorityOptions& options) {
  const PrivateKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslError("make a key");
  SLUICE_ASSIGN_OR_RETURN(const Certificate certificate,
                          NewCertificate(options, kAuthorityName, key.get()));
  X509* const x = certificate.get();
  if (X509_set_issuer_name(x, X509_get_subject_name(x)) != 1 ||
      !AddExtension(x, x, NID_basic_constraints, "critical,CA:TRUE") ||
      !AddExtension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(x, x, NID_subject_key_identifier, "hash") ||
      X509_sign(x, key.get(), EVP_sha256()) <= 0) {
    return OpensslError("sign the certificate of the CA");
  }
  return WriteFiles(options.folder, "ca", x, key.get());
}

}  // namespace

absl::Status MakeKeyFolder(const std::string& folder) {
  // Only the last folder gets the narrow mode; those above it may hold other things.
  const std::string parent = std::filesystem::path(folder + "/").parent_path().parent_path();
  if (!parent.empty()) SLUICE_RETURN_IF_ERROR(Env::Real()->MakeDirs(parent));
  if (::mkdir(folder.c_str(), kFolderMode) != 0 && errno != EEXIST)
    return absl::ErrnoToStatus(errno, absl::StrCat("make folder ", folder));
  SLUICE_RETURN_IF_ERROR(Env::Real()->MakeDirs(folder));  // syncs it; an error for no folder
  // Also for a folder that has just been made: another user may have been faster.
  struct stat found = {};
  if (::stat(folder.c_str(), &found) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("look at folder ", folder));
  const uid_t user = ::geteuid();
  const bool owned = found.st_uid == user || found.st_uid == 0;
  if (owned && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0) return absl::OkStatus();
  const std::string fix =
      owned ? absl::StrCat("run 'chmod go-w ", folder, "'") : std::string("move it away");
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s belongs to user %d and has mode %04o, so others than user %d can replace the keys in it; "
      "%s, or give another folder",
      folder, found.st_uid, found.st_mode & 07777, user, fix));
}

absl::Status MakeAuthority(const CertAuthorityOptions& options) {
  SLUICE_RETURN_IF_ERROR(MakeKeyFolder(options.folder));
  // Nothing else cleans up after a run that was killed.
  RemoveUnfinishedPems(options.folder);
  const std::string certificate = CertificateOf(options.folder, "ca");
  const std::string key = KeyOf(options.folder, "ca");
  const bool has_certificate = Env::Real()->Exists(certificate);
  const bool has_key = Env::Real()->Exists(key);
  if (!has_certificate && !has_key) return WriteAuthority(options);
  // Half a CA is not replaced: the other half may only have been moved, and a new CA would be
  // trusted by nobody.
  if (!has_certificate || !has_key) {
    return Wrong(has_key ? key : certificate,
                 absl::StrCat("exists, but ", has_key ? certificate : key,
                              " does not; put that file back, or give another folder"));
  }
  return ReadAuthority(options.folder).status();
}

absl::StatusOr<absl::Time> EndOfAuthority(const std::string& folder) {
  SLUICE_ASSIGN_OR_RETURN(const Authority authority, ReadAuthority(folder));
  const std::optional<absl::Time> end = EndOf(authority.certificate.get());
  if (!end.has_value()) return OpensslError("read the end of the CA's certificate");
  return *end;
}

TlsFiles FilesOf(const std::string& folder, const std::string& stem) {
  return {CertificateOf(folder, stem), KeyOf(folder, stem), CertificateOf(folder, "ca")};
}

absl::StatusOr<std::optional<std::vector<std::string>>> HostsOfCertificate(
    const std::string& folder, PeerRole role) {
  const std::string stem = PeerRoleName(role);
  const TlsFiles files = FilesOf(folder, stem);
  // A key without a certificate is used again, too.
  if (Env::Real()->Exists(files.key)) SLUICE_RETURN_IF_ERROR(KeyFor(folder, stem).status());
  if (!Env::Real()->Exists(files.cert)) return std::nullopt;
  constexpr absl::string_view kWayOut = "; move it and its .key file away to have a new pair made";
  SLUICE_ASSIGN_OR_RETURN(const Authority authority, ReadAuthority(folder));
  const Certificate certificate = ReadCertificate(files.cert);
  if (certificate == nullptr)
    return Wrong(files.cert, absl::StrCat("cannot be read as a certificate in PEM form", kWayOut));
  if (X509_verify(certificate.get(), authority.key.get()) != 1) {
    return Wrong(files.cert, absl::StrCat("is not signed by ", files.ca, kWayOut,
                                          ", or put the earlier CA's ca.pem and ca.key back"));
  }
  std::optional<std::vector<std::string>> hosts = ReadHosts(role, certificate.get());
  if (!hosts.has_value()) {
    return Wrong(files.cert, absl::StrCat("has other names than those of a ", PeerRoleName(role),
                                          " and its hosts", kWayOut));
  }
  // A renewed certificate is copied to its host without the key, so it must not be for a new one.
  if (!Env::Real()->Exists(files.key))
    return Wrong(files.cert, absl::StrCat("has lost its key ", files.key, kWayOut));
  return hosts;
}

std::vector<std::string> OtherCertificates(const std::string& folder) {
  std::vector<std::string> others;
  for (const std::string& name : Env::Real()->List(folder).value_or(std::vector<std::string>())) {
    absl::string_view stem = name;
    if (!absl::ConsumeSuffix(&stem, ".pem")) continue;
    if (std::any_of(std::begin(kPeerRoles), std::end(kPeerRoles),
                    [&](PeerRole role) { return stem == PeerRoleName(role); })) {
      continue;
    }
    const std::string path = absl::StrCat(folder, "/", name);
    const Certificate certificate = ReadCertificate(path);
    if (certificate != nullptr && X509_check_ca(certificate.get()) == 0) others.push_back(path);
  }
  ERR_clear_error();
  return others;
}

absl::Status MakeCertificate(const CertAuthorityOptions& options, PeerRole role,
                             const std::vector<std::string>& hosts) {
  const std::string stem = PeerRoleName(role);
  SLUICE_ASSIGN_OR_RETURN(const Authority authority, ReadAuthority(options.folder));
  SLUICE_ASSIGN_OR_RETURN(const StemKey key, KeyFor(options.folder, stem));
  SLUICE_ASSIGN_OR_RETURN(const Certificate certificate,
                          NewCertificate(options, absl::StrCat("sluice ", stem), key.key.get()));
  X509* const x = certificate.get();
  X509* const ca = authority.certificate.get();
  if (X509_set_issuer_name(x, X509_get_subject_name(ca)) != 1 ||
      !AddExtension(x, ca, NID_basic_constraints, "CA:FALSE") ||
      !AddExtension(x, ca, NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(x, ca, NID_ext_key_usage, "serverAuth,clientAuth") ||
      !AddExtension(x, ca, NID_authority_key_identifier, "keyid:always") ||
      !AddAlternativeNames(role, hosts, x) ||
      X509_sign(x, authority.key.get(), EVP_sha256()) <= 0) {
    return OpensslError("sign a certificate");
  }
  return WriteFiles(options.folder, stem, x, key.is_new ? key.key.get() : nullptr);
}

}  // namespace sluice
