#include "common/security/tls_server.h"

#include <gtest/gtest.h>
#include <openssl/err.h>

#include <filesystem>
#include <utility>

#include "tests/common/base/fake_clock.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/security/tls_client.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Both ends of one connection, after their handshake.
struct Ends {
  TlsSession server, client;
  bool server_accepts = false, client_accepts = false;
};

class TlsServerTest : public testing::Test {
 protected:
  // Copies the files into a folder of this test, where they can be replaced.
  TlsFiles Install(const TlsFiles& from) {
    const std::string folder = certificates_.folder() + "/installed";
    fs::create_directory(folder);
    const TlsFiles to = {folder + "/cert", folder + "/key", folder + "/ca"};
    const auto options = fs::copy_options::overwrite_existing;
    fs::copy_file(from.cert, to.cert, options);
    fs::copy_file(from.key, to.key, options);
    fs::copy_file(from.ca, to.ca, options);
    return to;
  }
  std::unique_ptr<TlsServer> Serve(const TlsFiles& files) {
    TlsServer::Options options;
    options.files = files;
    options.clock = &clock_;
    options.env = Env::Real();
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    auto server = TlsServer::Create(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  // The handshake, in memory.
  static Ends Connect(TlsServer* server, SSL_CTX* client, SSL_SESSION* resumed = nullptr) {
    Ends ends{server->NewSession(), TlsSession(SSL_new(client))};
    if (resumed != nullptr) SSL_set_session(ends.client.get(), resumed);
    BIO *of_server = nullptr, *of_client = nullptr;
    EXPECT_EQ(BIO_new_bio_pair(&of_server, 1 << 16, &of_client, 1 << 16), 1);
    SSL_set_bio(ends.server.get(), of_server, of_server);
    SSL_set_bio(ends.client.get(), of_client, of_client);
    for (int i = 0; i < 10; ++i) {
      ends.client_accepts = SSL_connect(ends.client.get()) == 1;
      ends.server_accepts = SSL_accept(ends.server.get()) == 1;
    }
    char byte;
    SSL_read(ends.client.get(), &byte, 1);  // an alert, or a ticket, that has come after the end
    ERR_clear_error();
    return ends;
  }
  // The serial number of the server's certificate, as the client sees it.
  static std::string SerialOf(const Ends& ends) {
    X509* const certificate = SSL_get0_peer_certificate(ends.client.get());
    if (certificate == nullptr) return "none";
    const ASN1_INTEGER* const serial = X509_get0_serialNumber(certificate);
    return std::string(reinterpret_cast<const char*>(serial->data),
                       static_cast<size_t>(serial->length));
  }

  FakeClock clock_;
  std::vector<std::string> lines_;
  TestCertificates certificates_{"tls_server"};
};

TEST_F(TlsServerTest, TheSessionNamesTheClient) {
  const auto server = Serve(certificates_.Of(PeerRole::kScheduler));
  const TlsContext client = TlsClient(certificates_.Of(PeerRole::kWorker, "3"));
  const Ends ends = Connect(server.get(), client.get());
  ASSERT_TRUE(ends.server_accepts && ends.client_accepts);
  const auto peer = PeerOf(*ends.server);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_TRUE(peer->verified);
  EXPECT_EQ(peer->role, PeerRole::kWorker);
  EXPECT_EQ(peer->name, "3");
}

TEST_F(TlsServerTest, AClientWithoutACertificateIsNobody) {
  const auto server = Serve(certificates_.Of(PeerRole::kScheduler));
  TlsFiles only_ca;
  only_ca.ca = certificates_.Of(PeerRole::kOperator).ca;
  const TlsContext client = TlsClient(only_ca);
  const Ends ends = Connect(server.get(), client.get());
  ASSERT_TRUE(ends.server_accepts && ends.client_accepts);
  EXPECT_TRUE(absl::IsPermissionDenied(PeerOf(*ends.server).status()));
}

TEST_F(TlsServerTest, CertificatesOfAnotherAuthorityAndExpiredOnesAreRefused) {
  const auto server = Serve(certificates_.Of(PeerRole::kScheduler));
  const TestCertificates others("tls_server_others");
  TlsFiles foreign = others.Of(PeerRole::kOperator);
  foreign.ca = certificates_.Of(PeerRole::kOperator).ca;  // the client trusts the server
  const absl::Time past = Clock::Real()->WallNow() - absl::Minutes(1);
  for (const TlsFiles& files : {foreign, certificates_.Of(PeerRole::kOperator, "old", past)}) {
    const TlsContext client = TlsClient(files);
    const Ends ends = Connect(server.get(), client.get());
    EXPECT_FALSE(ends.server_accepts) << files.cert;
    EXPECT_NE(SSL_get_verify_result(ends.server.get()), X509_V_OK) << files.cert;
  }
}

TEST_F(TlsServerTest, VersionsBefore12AreRefused) {
  const auto server = Serve(certificates_.Of(PeerRole::kScheduler));
  const TlsContext client = TlsClient(certificates_.Of(PeerRole::kOperator));
  SSL_CTX_set_security_level(client.get(), 0);
  for (const auto& [version, accepted] :
       {std::make_pair(TLS1_1_VERSION, false), {TLS1_2_VERSION, true}, {TLS1_3_VERSION, true}}) {
    SSL_CTX_set_min_proto_version(client.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(client.get(), version);
    EXPECT_EQ(Connect(server.get(), client.get()).server_accepts, accepted) << version;
  }
}

TEST_F(TlsServerTest, SessionsAreNotResumed) {
  const auto server = Serve(certificates_.Of(PeerRole::kScheduler));
  const TlsContext client = TlsClient(certificates_.Of(PeerRole::kOperator));
  SSL_CTX_set_session_cache_mode(client.get(), SSL_SESS_CACHE_CLIENT);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    SSL_CTX_set_max_proto_version(client.get(), version);
    const Ends first = Connect(server.get(), client.get());
    ASSERT_TRUE(first.server_accepts);
    SSL_SESSION* const session = SSL_get0_session(first.client.get());
    const Ends second = Connect(server.get(), client.get(), session);
    EXPECT_TRUE(second.server_accepts);
    EXPECT_FALSE(SSL_session_reused(second.server.get())) << version;
  }
}

TEST_F(TlsServerTest, ReplacedFilesAreUsedWithinTenSeconds) {
  const TlsFiles files = Install(certificates_.Of(PeerRole::kScheduler));
  const auto server = Serve(files);
  const TlsContext client = TlsClient(certificates_.Of(PeerRole::kOperator));
  const std::string before = SerialOf(Connect(server.get(), client.get()));
  const TestCertificates others("tls_server_others");
  Install(others.Of(PeerRole::kScheduler));
  EXPECT_EQ(SerialOf(Connect(server.get(), client.get())), before);
  clock_.Advance(absl::Seconds(10));
  // The new CA also decides which clients are let in.
  const TlsContext other = TlsClient(others.Of(PeerRole::kOperator));
  const Ends ends = Connect(server.get(), other.get());
  EXPECT_TRUE(ends.server_accepts && ends.client_accepts);
  EXPECT_NE(SerialOf(ends), before);
  EXPECT_FALSE(Connect(server.get(), client.get()).server_accepts);
}

TEST_F(TlsServerTest, FilesThatDoNotFitTogetherAreNotUsed) {
  const TlsFiles files = Install(certificates_.Of(PeerRole::kScheduler));
  const auto server = Serve(files);
  const TlsContext client = TlsClient(certificates_.Of(PeerRole::kOperator));
  const std::string before = SerialOf(Connect(server.get(), client.get()));
  const TlsFiles next = certificates_.Of(PeerRole::kScheduler, "next");
  const auto options = fs::copy_options::overwrite_existing;
  fs::copy_file(next.cert, files.cert, options);
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(SerialOf(Connect(server.get(), client.get())), before)
      << "a new certificate, an old key";
  fs::remove(files.key);
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(SerialOf(Connect(server.get(), client.get())), before) << "no key";
  fs::copy_file(next.key, files.key);
  clock_.Advance(absl::Seconds(10));
  const Ends ends = Connect(server.get(), client.get());
  EXPECT_TRUE(ends.server_accepts);
  EXPECT_NE(SerialOf(ends), before);
}

TEST_F(TlsServerTest, AFailedReplacementIsLoggedOnceAndThenRarely) {
  const TlsFiles files = Install(certificates_.Of(PeerRole::kScheduler));
  const auto server = Serve(files);
  const TlsContext client = TlsClient(certificates_.Of(PeerRole::kOperator));
  const auto look = [&] {
    clock_.Advance(absl::Seconds(10));
    EXPECT_TRUE(Connect(server.get(), client.get()).server_accepts);
    return lines_.size();
  };
  EXPECT_EQ(look(), 0u);
  fs::permissions(files.key, fs::perms::others_read, fs::perm_options::add);
  EXPECT_EQ(look(), 1u) << "the mode of the key";
  EXPECT_EQ(look(), 1u);
  clock_.Advance(absl::Minutes(10));
  EXPECT_EQ(look(), 2u);
  fs::permissions(files.key, fs::perms::others_read, fs::perm_options::remove);
  EXPECT_EQ(look(), 3u) << "it is used again";
  EXPECT_EQ(look(), 3u);
}

TEST_F(TlsServerTest, ACertificateOfAnotherRoleDoesNotReplaceTheOwnOne) {
  const TlsFiles files = Install(certificates_.Of(PeerRole::kScheduler));
  const auto server = Serve(files);
  const TlsContext client = TlsClient(certificates_.Of(PeerRole::kOperator));
  const std::string before = SerialOf(Connect(server.get(), client.get()));
  Install(certificates_.Of(PeerRole::kOperator));
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(SerialOf(Connect(server.get(), client.get())), before);
  ASSERT_EQ(lines_.size(), 1u);
}

TEST_F(TlsServerTest, TheEndOfTheCertificateInUseIsKnown) {
  const absl::Time first = absl::FromUnixSeconds(4'000'000'000);
  const TlsFiles files = Install(certificates_.Of(PeerRole::kScheduler, "", first));
  const auto server = Serve(files);
  const TlsContext client = TlsClient(certificates_.Of(PeerRole::kOperator));
  EXPECT_EQ(server->certificate_end(), first);
  Install(certificates_.Of(PeerRole::kScheduler, "next", first + absl::Hours(1)));
  EXPECT_EQ(server->certificate_end(), first);
  clock_.Advance(absl::Seconds(10));
  Connect(server.get(), client.get());
  EXPECT_EQ(server->certificate_end(), first + absl::Hours(1));
}

TEST_F(TlsServerTest, WrongFilesAreRefusedAtTheStart) {
  TlsServer::Options options;
  options.files = certificates_.Of(PeerRole::kScheduler);
  options.files.key = certificates_.Of(PeerRole::kWorker).key;
  options.clock = &clock_;
  options.env = Env::Real();
  EXPECT_EQ(TlsServer::Create(std::move(options)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
