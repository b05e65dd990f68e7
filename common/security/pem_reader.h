// Reads certificates and keys from PEM files.
//
// Errors: OpenSSL keeps the reason of a null in the error queue of the thread.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "common/security/openssl_types.h"

namespace sluice {

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
