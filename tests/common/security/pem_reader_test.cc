#include "common/security/pem_reader.h"

#include <gtest/gtest.h>
#include <openssl/err.h>

#include <fstream>

#include "tests/common/security/test_certificates.h"

namespace sluice {
namespace {

TEST(PemReaderTest, ReadsTheFirstCertificateAndTheKey) {
  const TestCertificates authority("pem_reader_test");
  const TlsFiles files = authority.Of(PeerRole::kWorker, "3");
  std::ofstream(files.cert, std::ios::app) << std::ifstream(files.ca).rdbuf();
  const Certificate certificate = ReadCertificate(files.cert);
  ASSERT_NE(certificate, nullptr);
  EXPECT_EQ(OwnerOf(certificate.get())->name, "3");
  const PrivateKey key = ReadPrivateKey(files.key);
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(X509_check_private_key(certificate.get(), key.get()), 1);
}

TEST(PemReaderTest, FilesOfAnotherKindAreNull) {
  const TestCertificates authority("pem_reader_test");
  const TlsFiles files = authority.Of(PeerRole::kWorker);
  for (const std::string& path : {authority.folder() + "/none", authority.folder()}) {
    EXPECT_EQ(ReadCertificate(path), nullptr) << path;
    EXPECT_EQ(ReadPrivateKey(path), nullptr) << path;
  }
  EXPECT_EQ(ReadCertificate(files.key), nullptr);
  EXPECT_EQ(ReadPrivateKey(files.cert), nullptr);
  ERR_clear_error();
}

}  // namespace
}  // namespace sluice
