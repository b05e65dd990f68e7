// Owners of the OpenSSL objects that several files use.
#pragma once

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace sluice {

template <auto kFree>
struct OpensslFree {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Certificate = std::unique_ptr<X509, OpensslFree<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using GeneralNames = std::unique_ptr<GENERAL_NAMES, OpensslFree<GENERAL_NAMES_free>>;

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
using OpenFile = std::unique_ptr<FILE, CloseFile>;

// Null when the file holds no key in PEM form, or one with a password. Without a callback of its
// own, OpenSSL would ask for the password on the terminal and wait.
inline PrivateKey ReadPrivateKey(FILE* file) {
  const auto no_password = [](char*, int, int, void*) { return -1; };
  return PrivateKey(PEM_read_PrivateKey(file, nullptr, no_password, nullptr));
}

// The first certificate of the file. Null when the file cannot be read or holds none in PEM form.
inline Certificate ReadCertificate(const std::string& path) {
  const OpenFile file(std::fopen(path.c_str(), "re"));
  return Certificate(file == nullptr ? nullptr
                                     : PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
}
// The same for a key.
inline PrivateKey ReadPrivateKey(const std::string& path) {
  const OpenFile file(std::fopen(path.c_str(), "re"));
  return file == nullptr ? nullptr : ReadPrivateKey(file.get());
}

// None when the certificate does not say it as a time.
inline std::optional<absl::Time> EndOfCertificate(const X509* certificate) {
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return std::nullopt;
  return absl::FromTM(end, absl::UTCTimeZone());
}

}  // namespace sluice
