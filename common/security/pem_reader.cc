#include "common/security/pem_reader.h"

#include <openssl/pem.h>

namespace sluice {

Certificate ReadCertificate(const std::string& path) {
  const OpenFile file(std::fopen(path.c_str(), "re"));
  return Certificate(file == nullptr ? nullptr
                                     : PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
}

PrivateKey ReadPrivateKey(const std::string& path) {
  const OpenFile file(std::fopen(path.c_str(), "re"));
  return file == nullptr ? nullptr : ReadPrivateKey(file.get());
}

PrivateKey ReadPrivateKey(FILE* file) {
  // Without a callback, OpenSSL would ask for the password on the terminal and wait.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  return PrivateKey(PEM_read_PrivateKey(file, nullptr, no_password, nullptr));
}

}  // namespace sluice
