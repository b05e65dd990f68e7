// Owners of OpenSSL objects, and readers of certificates and keys in PEM files.
//
// Errors: OpenSSL keeps the reason of a null in the error queue of the thread.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <string>

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

// The first certificate of the file. Null when the file cannot be read or holds none in PEM form.
Certificate ReadCertificate(const std::string& path);

// Null when the file cannot be read, or holds no key in PEM form, or one with a password. Never
// asks for the password.
PrivateKey ReadPrivateKey(const std::string& path);
PrivateKey ReadPrivateKey(FILE* file);

}  // namespace sluice
