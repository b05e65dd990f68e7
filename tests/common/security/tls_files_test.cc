#include "common/security/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/base/clock.h"
#include "common/security/cert_authority.h"
#include "common/security/pem_reader.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOfFile(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A cluster's CA with the certificate of a worker, and another CA with one of its own.
class TlsFilesTest : public testing::Test {
 protected:
  TlsFilesTest() {
    std::string pattern = testing::TempDir() + "/tls_files_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    files_ = Make("cluster", PeerRole::kWorker, -absl::Hours(1), absl::Hours(1));
    other_ = Make("other", PeerRole::kWorker, -absl::Hours(1), absl::Hours(1));
  }
  ~TlsFilesTest() override { fs::remove_all(dir_); }

  // A certificate of the CA of a folder, valid between these times from now.
  TlsFiles Make(const std::string& folder, PeerRole role, absl::Duration from, absl::Duration to) {
    const absl::Time now = Clock::Real()->WallNow();
    const std::string path = dir_ + "/" + folder;
    const absl::Status ca = MakeAuthority({path, now - absl::Hours(1), now + absl::Hours(1)});
    EXPECT_TRUE(ca.ok()) << ca;
    const absl::Status made = MakeCertificate({path, now + from, now + to}, role, {});
    EXPECT_TRUE(made.ok()) << made;
    return FilesOf(path, PeerRoleName(role));
  }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
    return dir_ + "/" + name;
  }
  // The message with which the files are refused.
  static std::string Refusal(const TlsFiles& files) {
    const absl::Status refused = CheckTlsFiles(files);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    return std::string(refused.message());
  }

  std::string dir_;
  TlsFiles files_, other_;
};

TEST_F(TlsFilesTest, FilesAreGivenWhenOneIs) {
  EXPECT_FALSE(TlsFiles().given());
  EXPECT_TRUE((TlsFiles{"c", "", ""}.given()));
  EXPECT_TRUE((TlsFiles{"", "k", ""}.given()));
  EXPECT_TRUE((TlsFiles{"", "", "a"}.given()));
}

TEST_F(TlsFilesTest, FilesThatBelongTogetherAreAccepted) {
  const absl::Status accepted = CheckTlsFiles(files_);
  EXPECT_TRUE(accepted.ok()) << accepted;
  EXPECT_TRUE(CheckTlsFiles(other_).ok());
}

TEST_F(TlsFilesTest, MissingFlagIsNamed) {
  const TlsFiles f = files_;
  EXPECT_THAT(Refusal({"", f.key, f.ca}), HasSubstr("--tls_cert is missing"));
  EXPECT_THAT(Refusal({f.cert, "", f.ca}), HasSubstr("--tls_key is missing"));
  EXPECT_THAT(Refusal({f.cert, f.key, ""}), HasSubstr("--tls_ca is missing"));
}

TEST_F(TlsFilesTest, FileThatCannotBeReadIsNamed) {
  const TlsFiles f = files_;
  const std::string none = dir_ + "/none";
  EXPECT_THAT(Refusal({none, f.key, f.ca}), HasSubstr("--tls_cert: " + none + " cannot be read"));
  EXPECT_THAT(Refusal({f.cert, none, f.ca}), HasSubstr("--tls_key: " + none + " cannot be read"));
  EXPECT_THAT(Refusal({f.cert, f.key, none}), HasSubstr("--tls_ca: " + none + " cannot be read"));
}

TEST_F(TlsFilesTest, FileWithOtherContentIsNamed) {
  const TlsFiles f = files_;
  for (const std::string& bad : {Write("empty", ""), Write("text", "no PEM\n"), dir_}) {
    EXPECT_THAT(Refusal({bad, f.key, f.ca}), HasSubstr("--tls_cert: " + bad + " holds no"));
    EXPECT_THAT(Refusal({f.cert, bad, f.ca}), HasSubstr("--tls_key: " + bad + " holds no"));
    EXPECT_THAT(Refusal({f.cert, f.key, bad}), HasSubstr("--tls_ca: " + bad + " holds no"));
  }
  EXPECT_THAT(Refusal({f.key, f.key, f.ca}), HasSubstr("--tls_cert: " + f.key + " holds no"));
  EXPECT_THAT(Refusal({f.cert, f.cert, f.ca}), HasSubstr("--tls_key: " + f.cert + " holds no"));
  EXPECT_THAT(Refusal({f.cert, f.key, f.key}), HasSubstr("--tls_ca: " + f.key + " holds no"));
}

TEST_F(TlsFilesTest, KeyWithAPasswordIsRefusedWithoutAskingForIt) {
  const OpenFile plain(std::fopen(files_.key.c_str(), "re"));
  const PrivateKey key = ReadPrivateKey(plain.get());
  ASSERT_NE(key, nullptr);
  const std::string path = Write("encrypted.key", "");
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  {
    const OpenFile file(std::fopen(path.c_str(), "we"));
    unsigned char password[] = "secret";
    ASSERT_EQ(PEM_write_PrivateKey(file.get(), key.get(), EVP_aes_256_cbc(), password, 6, nullptr,
                                   nullptr),
              1);
  }
  // OpenSSL asks on standard input where there is no terminal; the right answer waits there.
  const OpenFile answer(std::fopen(Write("answer", "secret\n").c_str(), "re"));
  const int before = ::dup(STDIN_FILENO);
  ASSERT_GE(::dup2(fileno(answer.get()), STDIN_FILENO), 0);
  EXPECT_THAT(Refusal({files_.cert, path, files_.ca}),
              AllOf(HasSubstr("--tls_key: " + path), HasSubstr("password")));
  EXPECT_EQ(::lseek(STDIN_FILENO, 0, SEEK_CUR), 0);
  if (before >= 0) ::dup2(before, STDIN_FILENO);
  ::close(before);
}

TEST_F(TlsFilesTest, KeyOfAnotherCertificateIsRefused) {
  EXPECT_THAT(Refusal({files_.cert, other_.key, files_.ca}),
              AllOf(HasSubstr("--tls_key: " + other_.key), HasSubstr(files_.cert)));
}

TEST_F(TlsFilesTest, KeyThatOthersMayReadOrChangeIsRefused) {
  for (const mode_t mode : {0644, 0604, 0602, 0601, 0620, 0666}) {
    ASSERT_EQ(::chmod(files_.key.c_str(), mode), 0);
    EXPECT_THAT(Refusal(files_), AllOf(HasSubstr("--tls_key: " + files_.key), HasSubstr("chmod")))
        << std::oct << mode;
  }
  // A group may read the key: secrets of Kubernetes are given to containers so.
  for (const mode_t mode : {0600, 0400, 0640, 0440}) {
    ASSERT_EQ(::chmod(files_.key.c_str(), mode), 0);
    const absl::Status accepted = CheckTlsFiles(files_);
    EXPECT_TRUE(accepted.ok()) << std::oct << mode << ": " << accepted;
  }
}

TEST_F(TlsFilesTest, CertificateIsRefusedOutsideItsTime) {
  const TlsFiles ended =
      Make("cluster", PeerRole::kPserver, -absl::Minutes(20), -absl::Minutes(10));
  EXPECT_THAT(Refusal(ended), AllOf(HasSubstr("--tls_cert: " + ended.cert), HasSubstr("expired")));
  const TlsFiles early =
      Make("cluster", PeerRole::kScheduler, absl::Minutes(10), absl::Minutes(20));
  EXPECT_THAT(Refusal(early),
              AllOf(HasSubstr("--tls_cert: " + early.cert), HasSubstr("not yet valid")));
}

TEST_F(TlsFilesTest, CertificateOfAnotherAuthorityIsRefused) {
  EXPECT_THAT(Refusal({files_.cert, files_.key, other_.ca}),
              AllOf(HasSubstr("--tls_cert: " + files_.cert), HasSubstr(other_.ca)));
}

TEST_F(TlsFilesTest, OneOfSeveralTrustedAuthoritiesIsEnough) {
  // Both are trusted while a cluster changes from one CA to the other.
  const std::string both = Write("both.pem", TextOfFile(files_.ca) + TextOfFile(other_.ca));
  EXPECT_TRUE(CheckTlsFiles({files_.cert, files_.key, both}).ok());
  EXPECT_TRUE(CheckTlsFiles({other_.cert, other_.key, both}).ok());
}

TEST_F(TlsFilesTest, FirstCertificateOfTheFileIsTheProcesssOwn) {
  const std::string chain = Write("chain.pem", TextOfFile(files_.cert) + TextOfFile(files_.ca));
  EXPECT_TRUE(CheckTlsFiles({chain, files_.key, files_.ca}).ok());
  const std::string turned = Write("turned.pem", TextOfFile(files_.ca) + TextOfFile(files_.cert));
  EXPECT_THAT(Refusal({turned, files_.key, files_.ca}), HasSubstr("--tls_key: " + files_.key));
}

TEST_F(TlsFilesTest, CertificateWithoutARoleIsRefused) {
  // The CA's own certificate is valid, and does not name a role.
  const TlsFiles ca = FilesOf(dir_ + "/cluster", "ca");
  EXPECT_THAT(Refusal(ca), AllOf(HasSubstr("--tls_cert: " + ca.cert), HasSubstr("role"),
                                 Not(HasSubstr("is not valid"))));
}

// Replaces the extended key usages of the certificate and signs it again.
std::string WithUsages(const TlsFiles& files, const char* usages, const std::string& to) {
  const auto open = [](const std::string& path, const char* mode) {
    return OpenFile(std::fopen(path.c_str(), mode));
  };
  const Certificate certificate(
      PEM_read_X509(open(files.cert, "r").get(), nullptr, nullptr, nullptr));
  const std::string ca_key = fs::path(files.ca).parent_path() / "ca.key";
  const PrivateKey key = ReadPrivateKey(open(ca_key, "r").get());
  const int at = X509_get_ext_by_NID(certificate.get(), NID_ext_key_usage, -1);
  X509_EXTENSION_free(X509_delete_ext(certificate.get(), at));
  X509_EXTENSION* const usage = X509V3_EXT_conf_nid(nullptr, nullptr, NID_ext_key_usage, usages);
  X509_add_ext(certificate.get(), usage, -1);
  X509_EXTENSION_free(usage);
  EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  EXPECT_EQ(PEM_write_X509(open(to, "w").get(), certificate.get()), 1);
  return to;
}

TEST_F(TlsFilesTest, CertificateForOneSideOfAConnectionIsRefused) {
  const auto with = [&](const char* usages) {
    return TlsFiles{WithUsages(files_, usages, dir_ + "/usages.pem"), files_.key, files_.ca};
  };
  EXPECT_THAT(Refusal(with("serverAuth")), HasSubstr("extended key usages"));
  EXPECT_THAT(Refusal(with("clientAuth")), HasSubstr("extended key usages"));
  const absl::Status both = CheckTlsFiles(with("clientAuth,serverAuth"));
  EXPECT_TRUE(both.ok()) << both;
}

TEST_F(TlsFilesTest, AServiceNeedsItsAuthorityAndAWholeCertificateOrNone) {
  TlsFiles files;
  files.ca = other_.ca;
  EXPECT_TRUE(CheckServiceFiles(files, "etcd_").ok()) << "the service asks for no certificate";
  files.cert = files_.cert;
  files.key = files_.key;
  EXPECT_TRUE(CheckServiceFiles(files, "etcd_").ok()) << "another authority may have signed it";
  const auto refused = [](const TlsFiles& wrong, const std::string& flag) {
    const absl::Status status = CheckServiceFiles(wrong, "etcd_");
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--etcd_" + flag));
  };
  TlsFiles wrong = files;
  wrong.ca.clear();
  refused(wrong, "ca");
  wrong = files;
  wrong.key.clear();
  refused(wrong, "key");
  wrong = files;
  wrong.cert.clear();
  refused(wrong, "cert");
  wrong = files;
  wrong.key = other_.key;
  refused(wrong, "key");
  wrong = files;
  wrong.ca = Write("empty", "");
  refused(wrong, "ca");
  const TlsFiles old = Make("cluster", PeerRole::kPserver, -absl::Hours(1), -absl::Minutes(1));
  wrong = {old.cert, old.key, files.ca};
  refused(wrong, "cert");
}

}  // namespace
}  // namespace sluice
