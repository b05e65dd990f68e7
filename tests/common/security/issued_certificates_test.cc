#include "common/security/issued_certificates.h"

#include <gmock/gmock.h>
#include <openssl/pem.h>

#include <filesystem>
#include <fstream>

#include "common/security/openssl_types.h"
#include "common/security/pem_reader.h"
#include "tests/common/security/test_certificates.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class IssuedCertificatesTest : public testing::Test {
 protected:
  // Makes a certificate with the CA that ends then.
  TlsFiles Make(const CertificateRequest& request, const std::string& stem, absl::Time end) {
    const absl::Status made =
        MakeCertificate({authority_.folder(), end - absl::Hours(9), end}, request, stem);
    EXPECT_TRUE(made.ok()) << made;
    return FilesOf(authority_.folder(), stem);
  }
  IssuedCertificate Find(const std::string& stem) {
    const auto all = FindIssuedCertificates(authority_.folder());
    EXPECT_TRUE(all.ok()) << all.status();
    for (const IssuedCertificate& one : all.value_or(std::vector<IssuedCertificate>())) {
      if (one.stem == stem) return one;
    }
    ADD_FAILURE() << stem << " was not found";
    return {};
  }

  const absl::Time end_ = absl::FromUnixSeconds(2'000'000'000);
  TestCertificates authority_{"issued"}, other_{"issued-elsewhere"};
};

TEST_F(IssuedCertificatesTest, ACertificateIsFoundAsItWasRequested) {
  const std::vector<std::string> hosts = {"node1.example.com", "10.0.0.1", "::1", "localhost"};
  Make({PeerRole::kPserver, "7", hosts}, "pserver-7", end_);
  Make({PeerRole::kOperator, "alice", {}}, "alice", end_ + absl::Hours(1));
  const IssuedCertificate pserver = Find("pserver-7"), alice = Find("alice");
  EXPECT_EQ(pserver.obstacle, "");
  EXPECT_EQ(pserver.request.role, PeerRole::kPserver);
  EXPECT_EQ(pserver.request.name, "7");
  EXPECT_EQ(pserver.request.hosts, hosts);
  EXPECT_EQ(pserver.end, end_);
  EXPECT_EQ(alice.request.role, PeerRole::kOperator);
  EXPECT_EQ(alice.request.name, "alice");
  EXPECT_THAT(alice.request.hosts, ElementsAre());
  EXPECT_EQ(alice.end, end_ + absl::Hours(1));
}

TEST_F(IssuedCertificatesTest, TheAuthorityAndOtherFilesAreNoneOfThem) {
  std::ofstream(authority_.folder() + "/notes.txt") << "mine";
  std::ofstream(authority_.folder() + "/.pem") << "mine";
  Make({PeerRole::kWorker, "", {}}, "worker", end_);
  Make({PeerRole::kWorker, "1", {}}, "worker-1", end_);
  const auto all = FindIssuedCertificates(authority_.folder());
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::string> stems;
  for (const IssuedCertificate& one : *all) stems.push_back(one.stem);
  EXPECT_THAT(stems, ElementsAre("worker", "worker-1"));
}

TEST_F(IssuedCertificatesTest, ACertificateOfAnotherAuthorityIsAnObstacleWithItsEnd) {
  const TlsFiles foreign = other_.Of(PeerRole::kWorker, "", end_);
  fs::copy_file(foreign.cert, authority_.folder() + "/worker.pem");
  fs::copy_file(foreign.key, authority_.folder() + "/worker.key");
  fs::copy_file(other_.folder() + "/ca.pem", authority_.folder() + "/ca-next.pem");
  EXPECT_THAT(Find("worker").obstacle, HasSubstr("ca.pem"));
  EXPECT_EQ(Find("worker").end, end_);
  EXPECT_NE(Find("ca-next").obstacle, "");
  EXPECT_TRUE(Find("ca-next").end.has_value());
}

TEST_F(IssuedCertificatesTest, FilesThatCannotBeReadAreObstacles) {
  const TlsFiles no_certificate = authority_.Of(PeerRole::kWorker);
  std::ofstream(no_certificate.cert) << "no PEM";
  fs::create_directory(authority_.folder() + "/folder.pem");
  const TlsFiles no_key = Make({PeerRole::kPserver, "", {}}, "pserver", end_);
  fs::remove(no_key.key);
  const TlsFiles bad_key = Make({PeerRole::kOperator, "", {}}, "operator", end_);
  std::ofstream(bad_key.key) << "no PEM";
  for (const char* stem : {"worker", "folder"}) {
    EXPECT_NE(Find(stem).obstacle, "") << stem;
    EXPECT_FALSE(Find(stem).end.has_value()) << stem;
  }
  EXPECT_THAT(Find("pserver").obstacle, HasSubstr(no_key.key));
  EXPECT_THAT(Find("operator").obstacle, HasSubstr(bad_key.key));
  EXPECT_EQ(Find("operator").end, end_);
}

// A certificate of the CA whose alternative names are `names`, in the syntax of openssl.cnf.
void SignWithNames(const std::string& folder, const TlsFiles& files, const std::string& names) {
  const Certificate certificate = ReadCertificate(files.cert);
  ASSERT_NE(certificate, nullptr);
  X509* const x = certificate.get();
  const int at = X509_get_ext_by_NID(x, NID_subject_alt_name, -1);
  X509_EXTENSION_free(X509_delete_ext(x, at));
  if (!names.empty()) {
    X509_EXTENSION* const extension =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str());
    ASSERT_NE(extension, nullptr);
    X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
  }
  ASSERT_GT(X509_sign(x, ReadPrivateKey(folder + "/ca.key").get(), EVP_sha256()), 0);
  const OpenFile file(std::fopen(files.cert.c_str(), "we"));
  ASSERT_EQ(PEM_write_X509(file.get(), x), 1);
}

TEST_F(IssuedCertificatesTest, NamesThatARenewalWouldChangeAreAnObstacle) {
  const std::string worker = "URI:spiffe://sluice/sluice/worker";
  const std::vector<std::string> others = {"", "DNS:node1", "URI:spiffe://corp/sluice/worker/3",
                                           worker + ",URI:https://example.com/x",
                                           worker + ",email:a@example.com"};
  for (const std::string& names : others) {
    const TlsFiles files = Make({PeerRole::kWorker, "", {}}, "worker", end_);
    SignWithNames(authority_.folder(), files, names);
    EXPECT_NE(Find("worker").obstacle, "") << names;
    EXPECT_EQ(Find("worker").end, end_) << names;
  }
  const TlsFiles files = Make({PeerRole::kWorker, "", {}}, "worker", end_);
  SignWithNames(authority_.folder(), files, worker + ",DNS:node1");
  EXPECT_EQ(Find("worker").obstacle, "");
  EXPECT_THAT(Find("worker").request.hosts, ElementsAre("node1"));
}

TEST_F(IssuedCertificatesTest, AFolderWithoutAnAuthorityIsNamed) {
  std::ofstream(authority_.folder() + "/ca.pem") << "no PEM";
  const auto all = FindIssuedCertificates(authority_.folder());
  EXPECT_TRUE(absl::IsInvalidArgument(all.status())) << all.status();
  EXPECT_THAT(std::string(all.status().message()), HasSubstr(authority_.folder() + "/ca.pem"));
}

}  // namespace
}  // namespace sluice
