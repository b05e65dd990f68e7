#include "common/security/cert_authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/security/pem_reader.h"
#include "tests/common/security/sign_with_names.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string FileText(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

std::string TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

// "URI:...", "DNS:..." and "IP:..." with the octets of the address, in their order.
std::vector<std::string> AlternativeNames(X509* certificate) {
  const GeneralNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> all;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int type = 0;
    const auto* const value = static_cast<const ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &type));
    const char* const label = type == GEN_URI     ? "URI:"
                              : type == GEN_DNS   ? "DNS:"
                              : type == GEN_IPADD ? "IP:"
                                                  : "other:";
    all.push_back(label + TextOf(value));
  }
  return all;
}

std::string CommonName(const X509_NAME* name) {
  const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  EXPECT_GE(at, 0);
  return at < 0 ? "" : TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
}

bool IsCritical(X509* certificate, int nid) {
  const int at = X509_get_ext_by_NID(certificate, nid, -1);
  EXPECT_GE(at, 0) << OBJ_nid2sn(nid);
  return at >= 0 && X509_EXTENSION_get_critical(X509_get_ext(certificate, at)) == 1;
}

// Whether basicConstraints, which must be there, says that the certificate is one of a CA.
// X509_check_ca would also look at the key's usage.
bool SaysThatItIsAnAuthority(X509* certificate) {
  const std::unique_ptr<BASIC_CONSTRAINTS, OpensslFree<BASIC_CONSTRAINTS_free>> constraints(
      static_cast<BASIC_CONSTRAINTS*>(
          X509_get_ext_d2i(certificate, NID_basic_constraints, nullptr, nullptr)));
  EXPECT_NE(constraints, nullptr);
  return constraints != nullptr && constraints->ca != 0;
}

class CertAuthorityTest : public testing::Test {
 protected:
  CertAuthorityTest() {
    std::string pattern = testing::TempDir() + "/cert_authority_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    options_.folder = dir_ + "/certs";
    const absl::Time now = Clock::Real()->WallNow();
    options_.not_before = now - absl::Hours(1);
    options_.not_after = now + absl::Hours(1);
  }
  ~CertAuthorityTest() override { fs::remove_all(dir_); }

  std::string Path(const std::string& name) const { return options_.folder + "/" + name; }
  std::vector<std::string> FileNames() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(options_.folder))
      names.push_back(entry.path().filename());
    return names;
  }
  TlsFiles Make(PeerRole role, const std::vector<std::string>& hosts = {}) {
    const absl::Status made = MakeCertificate(options_, role, hosts);
    EXPECT_TRUE(made.ok()) << made;
    return FilesOf(options_.folder, PeerRoleName(role));
  }
  // Why the worker's certificate cannot be renewed; "" if it can be.
  std::string Obstacle() const {
    const absl::Status refused = HostsOfCertificate(options_.folder, PeerRole::kWorker).status();
    EXPECT_TRUE(refused.ok() || absl::IsInvalidArgument(refused)) << refused;
    return std::string(refused.message());
  }

  std::string dir_;
  CertAuthorityOptions options_;
};

TEST_F(CertAuthorityTest, CertificatesOfEveryRolePassTheCheck) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  for (const PeerRole role : kPeerRoles) {
    const absl::Status passed = CheckTlsFiles(Make(role, {"localhost"}));
    EXPECT_TRUE(passed.ok()) << PeerRoleName(role) << ": " << passed;
  }
}

TEST_F(CertAuthorityTest, AuthorityMaySignCertificatesAndNothingElse) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const Certificate ca = ReadCertificate(Path("ca.pem"));
  ASSERT_NE(ca, nullptr);
  EXPECT_EQ(X509_get_version(ca.get()), X509_VERSION_3);
  EXPECT_TRUE(SaysThatItIsAnAuthority(ca.get()));
  EXPECT_EQ(X509_get_key_usage(ca.get()), KU_KEY_CERT_SIGN | KU_CRL_SIGN);
  EXPECT_TRUE(IsCritical(ca.get(), NID_basic_constraints));
  EXPECT_TRUE(IsCritical(ca.get(), NID_key_usage));
  EXPECT_NE(X509_get0_subject_key_id(ca.get()), nullptr);
  EXPECT_EQ(CommonName(X509_get_subject_name(ca.get())), "Sluice development CA");
  EXPECT_EQ(CommonName(X509_get_issuer_name(ca.get())), "Sluice development CA");
}

TEST_F(CertAuthorityTest, CertificateMaySignHandshakesOfBothSidesAndNothingElse) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const Certificate ca = ReadCertificate(Path("ca.pem"));
  const Certificate one = ReadCertificate(Make(PeerRole::kWorker).cert);
  ASSERT_NE(ca, nullptr);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(X509_get_version(one.get()), X509_VERSION_3);
  EXPECT_FALSE(SaysThatItIsAnAuthority(one.get()));
  EXPECT_EQ(X509_get_key_usage(one.get()), KU_DIGITAL_SIGNATURE);
  EXPECT_TRUE(IsCritical(one.get(), NID_key_usage));
  EXPECT_EQ(X509_get_extended_key_usage(one.get()), XKU_SSL_SERVER | XKU_SSL_CLIENT);
  const ASN1_OCTET_STRING* const signer = X509_get0_authority_key_id(one.get());
  ASSERT_NE(signer, nullptr);
  EXPECT_EQ(ASN1_OCTET_STRING_cmp(signer, X509_get0_subject_key_id(ca.get())), 0);
  EXPECT_EQ(CommonName(X509_get_subject_name(one.get())), "sluice worker");
  EXPECT_EQ(CommonName(X509_get_issuer_name(one.get())), "Sluice development CA");
  EXPECT_EQ(X509_get_signature_nid(one.get()), NID_ecdsa_with_SHA256);
  char group[32] = "";
  EXPECT_EQ(EVP_PKEY_get_group_name(X509_get0_pubkey(one.get()), group, sizeof(group), nullptr), 1);
  EXPECT_STREQ(group, "prime256v1");  // P-256
}

TEST_F(CertAuthorityTest, SerialNumbersArePositiveAndDifferIn128Bits) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  std::vector<std::string> serials;
  for (const char* file : {"ca.pem", "worker.pem", "worker.pem"}) {
    if (std::string(file) != "ca.pem") Make(PeerRole::kWorker);
    const Certificate one = ReadCertificate(Path(file));
    ASSERT_NE(one, nullptr);
    BIGNUM* const serial = ASN1_INTEGER_to_BN(X509_get0_serialNumber(one.get()), nullptr);
    EXPECT_EQ(BN_num_bits(serial), 128);
    EXPECT_FALSE(BN_is_negative(serial));
    char* const digits = BN_bn2hex(serial);
    serials.push_back(digits);
    OPENSSL_free(digits);
    BN_free(serial);
  }
  EXPECT_NE(serials[0], serials[1]);
  EXPECT_NE(serials[1], serials[2]);
  EXPECT_NE(serials[0], serials[2]);
}

TEST_F(CertAuthorityTest, CertificateIsValidBetweenTheGivenTimes) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  options_.not_before = absl::FromUnixSeconds(1'000'000'000);
  options_.not_after = absl::FromUnixSeconds(3'000'000'000);  // after 2050: another encoding
  const Certificate one = ReadCertificate(Make(PeerRole::kWorker).cert);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(ASN1_TIME_cmp_time_t(X509_get0_notBefore(one.get()), 1'000'000'000), 0);
  EXPECT_EQ(ASN1_TIME_cmp_time_t(X509_get0_notAfter(one.get()), 3'000'000'000), 0);
}

TEST_F(CertAuthorityTest, EndOfTheAuthorityIsThatOfItsCertificate) {
  options_.not_after = absl::FromUnixSeconds(3'000'000'000);
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const auto end = EndOfAuthority(options_.folder);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, options_.not_after);
}

TEST_F(CertAuthorityTest, ExpiredCertificateIsRefused) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  options_.not_after = options_.not_before + absl::Minutes(30);
  const absl::Status expired = CheckTlsFiles(Make(PeerRole::kWorker));
  EXPECT_TRUE(absl::IsInvalidArgument(expired)) << expired;
  EXPECT_THAT(std::string(expired.message()), HasSubstr("expired"));
}

TEST_F(CertAuthorityTest, HostsBecomeNamesAndAddresses) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const Certificate one =
      ReadCertificate(Make(PeerRole::kPserver, {"node1.example.com", "10.0.0.1", "::1"}).cert);
  ASSERT_NE(one, nullptr);
  EXPECT_THAT(
      AlternativeNames(one.get()),
      ElementsAre("URI:spiffe://sluice/sluice/pserver", "DNS:node1.example.com",
                  std::string("IP:\x0a\0\0\x01", 7), "IP:" + std::string(15, '\0') + "\x01"));
}

TEST_F(CertAuthorityTest, HostInjectsNoOtherName) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const std::string host = "a,URI:spiffe://sluice/sluice/operator,DNS:b";
  const TlsFiles files = Make(PeerRole::kWorker, {host});
  const Certificate one = ReadCertificate(files.cert);
  ASSERT_NE(one, nullptr);
  EXPECT_THAT(AlternativeNames(one.get()),
              ElementsAre("URI:spiffe://sluice/sluice/worker", "DNS:" + host));
  EXPECT_TRUE(CheckTlsFiles(files).ok());
}

TEST_F(CertAuthorityTest, HostsOfACertificateAreFoundAsTheyWereGiven) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  EXPECT_EQ(*HostsOfCertificate(options_.folder, PeerRole::kPserver), std::nullopt);
  const std::vector<std::vector<std::string>> given = {
      {"node1.example.com", "10.0.0.1", "::1", "localhost"}, {}};
  for (const std::vector<std::string>& hosts : given) {
    Make(PeerRole::kPserver, hosts);
    const auto found = HostsOfCertificate(options_.folder, PeerRole::kPserver);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, hosts);
  }
}

TEST_F(CertAuthorityTest, ACertificateOfAnotherAuthorityIsNotRenewed) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const std::string folder = options_.folder;
  options_.folder = dir_ + "/other";
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const TlsFiles foreign = Make(PeerRole::kWorker);
  options_.folder = folder;
  fs::copy_file(foreign.cert, Path("worker.pem"));
  fs::copy_file(foreign.key, Path("worker.key"));
  EXPECT_THAT(Obstacle(), AllOf(HasSubstr(Path("worker.pem")), HasSubstr(Path("ca.pem"))));
}

TEST_F(CertAuthorityTest, APairThatIsIncompleteOrUnreadableIsNotRenewed) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const TlsFiles files = Make(PeerRole::kWorker);
  fs::remove(files.key);
  EXPECT_THAT(Obstacle(), HasSubstr(files.key));
  std::ofstream(files.cert) << "no PEM";
  EXPECT_THAT(Obstacle(), HasSubstr(files.cert));
  Make(PeerRole::kWorker);
  EXPECT_EQ(Obstacle(), "");
  std::ofstream(files.key) << "no PEM";
  EXPECT_THAT(Obstacle(), HasSubstr(files.key));
  // The next certificate would be for this key.
  fs::remove(files.cert);
  EXPECT_THAT(Obstacle(), HasSubstr(files.key));
}

TEST_F(CertAuthorityTest, ACertificateWithOtherNamesIsNotRenewed) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const std::string worker = "URI:spiffe://sluice/sluice/worker";
  for (const std::string& names :
       {std::string(), std::string("DNS:node1"), std::string("URI:spiffe://corp/sluice/worker"),
        worker + "/3", worker + ",URI:https://example.com/x", worker + ",email:a@example.com"}) {
    SignWithNames(Make(PeerRole::kWorker), names);
    EXPECT_THAT(Obstacle(), HasSubstr(Path("worker.pem"))) << names;
  }
  SignWithNames(Make(PeerRole::kWorker), worker + ",DNS:node1");
  EXPECT_EQ(Obstacle(), "");
}

TEST_F(CertAuthorityTest, ACertificateWithHostsThatAreNoTextIsNotRenewed) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  for (const std::string& host :
       {std::string(), std::string("a b"), std::string("\xc3\xa4"), std::string("a\0b", 3),
        std::string("a\nb"), std::string("\033[2J")}) {
    Make(PeerRole::kWorker, {"localhost", host});
    EXPECT_THAT(Obstacle(), HasSubstr(Path("worker.pem"))) << host;
  }
}

TEST_F(CertAuthorityTest, OtherCertificatesAreThoseOfRanks) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const TlsFiles files = Make(PeerRole::kWorker);
  EXPECT_THAT(OtherCertificates(options_.folder), ElementsAre());
  for (const char* name : {"worker-1.pem", "worker-0.pem", "notes.txt"})
    fs::copy_file(files.cert, Path(name));
  fs::copy_file(files.ca, Path("both.pem"));
  std::ofstream(Path("text.pem")) << "no PEM";
  EXPECT_THAT(OtherCertificates(options_.folder),
              ElementsAre(Path("worker-0.pem"), Path("worker-1.pem")));
}

TEST_F(CertAuthorityTest, OnlyTheOwnerMayReadKeysWhateverTheUmask) {
  for (const mode_t mask : {mode_t{0}, mode_t{077}}) {
    const mode_t before = ::umask(mask);
    const absl::Status made = MakeAuthority(options_);
    EXPECT_TRUE(made.ok()) << made;
    Make(PeerRole::kWorker);
    ::umask(before);
    EXPECT_EQ(ModeOf(options_.folder), 0700);
    for (const char* stem : {"ca", "worker"}) {
      EXPECT_EQ(ModeOf(Path(std::string(stem) + ".key")), 0600) << mask;
      EXPECT_EQ(ModeOf(Path(std::string(stem) + ".pem")), 0644) << mask;
    }
    fs::remove_all(options_.folder);
  }
}

TEST_F(CertAuthorityTest, FolderHoldsTheFinishedFilesAlone) {
  options_.folder = dir_ + "/deep/er/";
  ASSERT_TRUE(MakeAuthority(options_).ok());
  Make(PeerRole::kWorker);
  EXPECT_THAT(FileNames(), UnorderedElementsAre("ca.pem", "ca.key", "worker.pem", "worker.key"));
  EXPECT_EQ(ModeOf(options_.folder), 0700);
}

TEST_F(CertAuthorityTest, CertificateThatCannotBeWrittenLeavesNothingBehind) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  fs::create_directory(Path("worker.key"));  // no file can get this name
  const absl::Status failed = MakeCertificate(options_, PeerRole::kWorker, {});
  EXPECT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.message()), HasSubstr(Path("worker.key")));
  EXPECT_THAT(FileNames(), UnorderedElementsAre("ca.pem", "ca.key", "worker.key"));
}

TEST_F(CertAuthorityTest, UnfinishedFilesOfAKilledProcessAreRemoved) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  for (const char* left : {"worker.key.7.12345.unfinished", "ca.pem.8.12345.unfinished"})
    std::ofstream(Path(left)) << "half";
  ASSERT_TRUE(MakeAuthority(options_).ok());
  EXPECT_THAT(FileNames(), UnorderedElementsAre("ca.pem", "ca.key"));
}

TEST_F(CertAuthorityTest, FolderThatExistsKeepsItsMode) {
  fs::create_directory(options_.folder);
  ASSERT_EQ(::chmod(options_.folder.c_str(), 0750), 0);
  ASSERT_TRUE(MakeAuthority(options_).ok());
  EXPECT_EQ(ModeOf(options_.folder), 0750);
}

TEST_F(CertAuthorityTest, AFolderThatOthersMayWriteToGetsNoKeys) {
  fs::create_directory(options_.folder);
  for (const mode_t mode : {0770, 0702, 01777}) {
    ASSERT_EQ(::chmod(options_.folder.c_str(), mode), 0);
    const absl::Status refused = MakeAuthority(options_);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr(options_.folder), HasSubstr(absl::StrFormat("%04o", mode)),
                      HasSubstr("chmod")));
    EXPECT_THAT(FileNames(), ElementsAre());
  }
}

TEST_F(CertAuthorityTest, AFolderOfAnotherUserGetsNoKeys) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directory(options_.folder);
  ASSERT_EQ(::chown(options_.folder.c_str(), 65534, 65534), 0);
  const absl::Status refused = MakeAuthority(options_);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(options_.folder), HasSubstr("65534")));
  EXPECT_THAT(FileNames(), ElementsAre());
}

TEST_F(CertAuthorityTest, ExistingAuthorityIsKept) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const std::string certificate = FileText(Path("ca.pem")), key = FileText(Path("ca.key"));
  const TlsFiles first = Make(PeerRole::kWorker);
  ASSERT_TRUE(MakeAuthority(options_).ok());
  EXPECT_EQ(FileText(Path("ca.pem")), certificate);
  EXPECT_EQ(FileText(Path("ca.key")), key);
  EXPECT_TRUE(CheckTlsFiles(Make(PeerRole::kPserver)).ok());
  EXPECT_TRUE(CheckTlsFiles(first).ok());
}

TEST_F(CertAuthorityTest, NewCertificateDoesNotTouchTheBytesOfTheOldOne) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const TlsFiles files = Make(PeerRole::kWorker);
  const std::string old = FileText(files.cert);
  std::ifstream reader(files.cert);
  Make(PeerRole::kWorker);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), old);
  EXPECT_NE(FileText(files.cert), old);
  EXPECT_TRUE(CheckTlsFiles(files).ok());
}

TEST_F(CertAuthorityTest, NewCertificateIsForTheKeyThatExists) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const TlsFiles files = Make(PeerRole::kWorker);
  const std::string key = FileText(files.key);
  Make(PeerRole::kWorker);
  EXPECT_EQ(FileText(files.key), key);
  // A process that died before it had written the certificate has left a key.
  fs::remove(files.cert);
  Make(PeerRole::kWorker);
  EXPECT_EQ(FileText(files.key), key);
  EXPECT_TRUE(CheckTlsFiles(files).ok());
  // A pair that does not fit fits again.
  const TlsFiles other = Make(PeerRole::kPserver);
  fs::copy_file(other.cert, files.cert, fs::copy_options::overwrite_existing);
  ASSERT_FALSE(CheckTlsFiles(files).ok());
  Make(PeerRole::kWorker);
  EXPECT_TRUE(CheckTlsFiles(files).ok());
}

TEST_F(CertAuthorityTest, AKeyThatCannotBeReadIsNamedAndKept) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  const TlsFiles files = Make(PeerRole::kWorker);
  const std::string certificate = FileText(files.cert);
  std::ofstream(files.key) << "no PEM";
  const absl::Status refused = MakeCertificate(options_, PeerRole::kWorker, {});
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(files.key));
  EXPECT_EQ(FileText(files.key), "no PEM");
  EXPECT_EQ(FileText(files.cert), certificate);
}

TEST_F(CertAuthorityTest, HalfAnAuthorityIsRefusedAndNotReplaced) {
  for (const std::string lost : {"ca.key", "ca.pem"}) {
    const std::string left = lost == "ca.key" ? "ca.pem" : "ca.key";
    fs::remove_all(options_.folder);
    ASSERT_TRUE(MakeAuthority(options_).ok());
    const std::string before = FileText(Path(left));
    fs::remove(Path(lost));
    const absl::Status refused = MakeAuthority(options_);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr(Path(lost)), HasSubstr(Path(left))));
    EXPECT_EQ(FileText(Path(left)), before);
    EXPECT_FALSE(fs::exists(Path(lost)));
    EXPECT_TRUE(absl::IsInvalidArgument(MakeCertificate(options_, PeerRole::kWorker, {})));
  }
}

TEST_F(CertAuthorityTest, FilesThatAreNoAuthorityAreRefused) {
  ASSERT_TRUE(MakeAuthority(options_).ok());
  Make(PeerRole::kWorker);
  const std::string ca_pem = FileText(Path("ca.pem")), ca_key = FileText(Path("ca.key"));
  const std::string worker_pem = FileText(Path("worker.pem")),
                    worker_key = FileText(Path("worker.key"));
  const auto refusal = [&](const std::string& pem, const std::string& key) {
    std::ofstream(Path("ca.pem")) << pem;
    std::ofstream(Path("ca.key")) << key;
    const absl::Status refused = MakeAuthority(options_);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_EQ(FileText(Path("ca.pem")), pem);
    return std::string(refused.message());
  };
  EXPECT_THAT(refusal("no PEM", ca_key), HasSubstr(Path("ca.pem")));
  EXPECT_THAT(refusal(ca_pem, "no PEM"), HasSubstr(Path("ca.key")));
  EXPECT_THAT(refusal(ca_pem, worker_key), HasSubstr(Path("ca.key")));
  EXPECT_THAT(refusal(worker_pem, worker_key), HasSubstr(Path("ca.pem")));
}

TEST_F(CertAuthorityTest, FolderThatCannotBeMadeIsAnErrorOfTheSystem) {
  std::ofstream(dir_ + "/file") << "x";
  for (const char* folder : {"/file", "/file/certs"}) {
    options_.folder = dir_ + folder;
    const absl::Status failed = MakeAuthority(options_);
    EXPECT_FALSE(failed.ok());
    EXPECT_FALSE(absl::IsInvalidArgument(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr(dir_ + "/file"));
  }
}

}  // namespace
}  // namespace sluice
