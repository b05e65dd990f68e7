// Gives a certificate of a development CA other names, such as those of a rank.
#pragma once

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "common/security/pem_reader.h"
#include "common/security/tls_files.h"
#include "gtest/gtest.h"

namespace sluice {

// Signs the certificate again. `names`: its alternative names, in the syntax of openssl.cnf; "" for
// none.
inline void SignWithNames(const TlsFiles& files, const std::string& names) {
  const Certificate certificate = ReadCertificate(files.cert);
  ASSERT_NE(certificate, nullptr);
  X509* const x = certificate.get();
  X509_EXTENSION_free(X509_delete_ext(x, X509_get_ext_by_NID(x, NID_subject_alt_name, -1)));
  if (!names.empty()) {
    X509_EXTENSION* const extension =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str());
    ASSERT_NE(extension, nullptr);
    X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
  }
  const std::string ca_key = std::filesystem::path(files.ca).replace_extension(".key");
  ASSERT_GT(X509_sign(x, ReadPrivateKey(ca_key).get(), EVP_sha256()), 0);
  const OpenFile file(std::fopen(files.cert.c_str(), "we"));
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(PEM_write_X509(file.get(), x), 1);
}

}  // namespace sluice
