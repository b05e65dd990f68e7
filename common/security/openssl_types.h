// Owners of the OpenSSL objects that several files use.
#pragma once

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>

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

}  // namespace sluice
