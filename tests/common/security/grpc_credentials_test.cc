// A GrpcStreamServer and a GrpcTransport with TLS between them.
#include "common/security/grpc_credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/arrow/parquet.h"
#include "common/shared_memory/file_descriptor.h"
#include "common/transport/grpc_transport.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/security/tls_client.h"
#include "tests/common/transport/grpc_servers.h"
#include "tests/common/transport/recording_streams.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GrpcCredentials CredentialsOf(const TlsFiles& files) {
  auto credentials = GrpcCredentials::Create(files, absl::Seconds(1));
  EXPECT_TRUE(credentials.ok()) << credentials.status();
  return credentials.ok() ? *std::move(credentials) : GrpcCredentials();
}

class GrpcCredentialsTest : public testing::Test {
 protected:
  std::unique_ptr<GrpcStreamServer> Serve(const TlsFiles& files) {
    GrpcStreamServer::Options options;
    options.credentials = CredentialsOf(files);
    options.audit = audit_.log();
    return StartServer(
        [this, inner = server_.factory()](std::shared_ptr<Stream> stream,
                                          const PeerIdentity& peer) {
          peer_ = peer;
          return inner(std::move(stream), peer);
        },
        options);
  }
  // How a stream from a client with these credentials to the server ends: OK when it carried a
  // message there and back.
  static absl::Status Exchange(const GrpcStreamServer& server, const GrpcCredentials& credentials,
                               std::optional<uint32_t> rank = std::nullopt) {
    GrpcTransport::Options options;
    options.credentials = credentials;
    GrpcTransport transport(options);
    RecordingClient client(&transport, PserverAddress(AddressOf(server), rank));
    client.Send("x");
    if (client.AwaitMessageOrEnd(1)) {
      client.Destroy();
      return absl::OkStatus();
    }
    EXPECT_TRUE(client.AwaitClosed());
    client.Destroy();
    return client.status().ok() ? absl::UnknownError("the stream ended without an answer")
                                : client.status();
  }

  TestCertificates certificates_{"cluster"};
  RecordedAudit audit_{"pserver"};
  ScriptedServer server_{Echo};
  PeerIdentity peer_;
};

TEST_F(GrpcCredentialsTest, SessionsPreferTheCheaperCipher) {
  CredentialsOf(certificates_.Of(PeerRole::kWorker, "0"));
  const TlsContext context(SSL_CTX_new(TLS_client_method()));
  const TlsSession session(SSL_new(context.get()));
  EXPECT_STREQ(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(SSL_get_ciphers(session.get()), 0)),
               "TLS_AES_128_GCM_SHA256");
}

TEST_F(GrpcCredentialsTest, AWorkerExchangesMessagesWithAPserver) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver, "0"));
  const absl::Status done =
      Exchange(*server, CredentialsOf(certificates_.Of(PeerRole::kWorker, "3")));
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_TRUE(peer_.verified);
  EXPECT_EQ(peer_.role, PeerRole::kWorker);
  EXPECT_EQ(peer_.name, "3");
}

// libparquet brings another OpenSSL into the process.
TEST_F(GrpcCredentialsTest, TlsWorksBesideTheLibraryForParquet) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver, "0"));
  const GrpcCredentials worker = CredentialsOf(certificates_.Of(PeerRole::kWorker, "3"));
  EXPECT_TRUE(Exchange(*server, worker).ok());
  const absl::Status opened = OpenArrow();
  if (!opened.ok()) GTEST_SKIP() << "SKIPPED, NOT PASSED: " << opened;
  EXPECT_TRUE(Exchange(*server, worker).ok());
  const auto late = Serve(certificates_.Of(PeerRole::kPserver, "1"));
  EXPECT_TRUE(Exchange(*late, CredentialsOf(certificates_.Of(PeerRole::kWorker, "4"))).ok());
  EXPECT_TRUE(peer_.verified);
  EXPECT_EQ(peer_.name, "4");
}

TEST_F(GrpcCredentialsTest, WithoutTlsNobodyIsVerified) {
  const auto server = Serve({});
  EXPECT_TRUE(Exchange(*server, GrpcCredentials()).ok());
  EXPECT_FALSE(peer_.verified);
}

TEST_F(GrpcCredentialsTest, OtherRolesMayNotCallTheMethod) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver));
  for (const PeerRole role : {PeerRole::kPserver, PeerRole::kScheduler, PeerRole::kOperator}) {
    const absl::Status refused = Exchange(*server, CredentialsOf(certificates_.Of(role)));
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << PeerRoleName(role);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(PeerRoleName(role)));
    EXPECT_THAT(audit_.Text(), HasSubstr(absl::StrCat("\"role\": \"", PeerRoleName(role),
                                                      "\", \"name\": \"\", \"address\": "
                                                      "\"127.0.0.1:")));
  }
  EXPECT_EQ(audit_.Refusals(kExchangeMethod, "role"), 3);
}

TEST_F(GrpcCredentialsTest, CallsOfUnknownMethodsAreRecorded) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver));
  GrpcTransport::Options options;
  options.credentials = CredentialsOf(certificates_.Of(PeerRole::kWorker));
  GrpcTransport transport(options);
  const auto reply =
      transport.Call(AddressOf(*server), "/sluice.Pserver/Nothing", "", absl::Seconds(20));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnimplemented) << reply.status();
  EXPECT_EQ(audit_.Refusals("other", "no_rule"), 1);
  EXPECT_THAT(audit_.Text(), HasSubstr("\"method\": \"/sluice.Pserver/Nothing\""));
}

TEST_F(GrpcCredentialsTest, AClientWithoutACertificateIsRefused) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver));
  EXPECT_EQ(Exchange(*server, GrpcCredentials()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcCredentialsTest, AServerWithoutACertificateIsRefused) {
  const auto server = Serve({});
  const absl::Status refused =
      Exchange(*server, CredentialsOf(certificates_.Of(PeerRole::kWorker)));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
}

TEST_F(GrpcCredentialsTest, CertificatesOfAnotherAuthorityAreRefused) {
  const TestCertificates others("others");
  const auto server = Serve(certificates_.Of(PeerRole::kPserver));
  EXPECT_EQ(Exchange(*server, CredentialsOf(others.Of(PeerRole::kWorker))).code(),
            absl::StatusCode::kUnavailable);
  // The client trusts the server's CA, and shows a certificate of another one.
  TlsFiles mixed = others.Of(PeerRole::kWorker);
  std::filesystem::copy_file(others.folder() + "/ca.pem", others.folder() + "/own-ca.pem");
  mixed.ca = others.folder() + "/both.pem";
  std::filesystem::copy_file(others.folder() + "/ca.pem", mixed.ca);
  {
    FILE* const both = std::fopen(mixed.ca.c_str(), "a");
    FILE* const ca = std::fopen((certificates_.folder() + "/ca.pem").c_str(), "r");
    for (int c; (c = std::fgetc(ca)) != EOF;) std::fputc(c, both);
    std::fclose(ca);
    std::fclose(both);
  }
  EXPECT_EQ(Exchange(*server, CredentialsOf(mixed)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcCredentialsTest, AServerOfAnotherRoleIsRefused) {
  const auto server = Serve(certificates_.Of(PeerRole::kWorker, "1"));
  const absl::Status refused =
      Exchange(*server, CredentialsOf(certificates_.Of(PeerRole::kWorker, "0")));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_FALSE(peer_.verified) << "the stream must not have reached the server";
}

TEST_F(GrpcCredentialsTest, APserverWithTheCertificateOfAnotherRankIsRefusedAndNamed) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver, "1"));
  const GrpcCredentials worker = CredentialsOf(certificates_.Of(PeerRole::kWorker, "0"));
  const absl::Status refused = Exchange(*server, worker, 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("pserver 1"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("pserver 0"));
  EXPECT_FALSE(peer_.verified) << "the stream must not have reached the server";
  GrpcTransport::Options options;
  options.credentials = worker;
  GrpcTransport transport(options);
  const auto reply = transport.Call(PserverAddress(AddressOf(*server), 0),
                                    "/sluice.Pserver/Nothing", "", absl::Seconds(20));
  EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
  // The address alone does not say which pserver it has to be.
  EXPECT_TRUE(Exchange(*server, worker, 1).ok());
  EXPECT_TRUE(Exchange(*server, worker).ok());
}

TEST_F(GrpcCredentialsTest, ACertificateWithoutARankServesAsAnyPserver) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver));
  const GrpcCredentials worker = CredentialsOf(certificates_.Of(PeerRole::kWorker, "0"));
  for (const uint32_t rank : {0, 7}) EXPECT_TRUE(Exchange(*server, worker, rank).ok());
}

TEST_F(GrpcCredentialsTest, ACertificateThatExpiresLaterIsRefusedThen) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver));
  // Longer where the machine is too slow to use it in time.
  for (absl::Duration life = absl::Seconds(2);; life *= 2) {
    const absl::Time end = Clock::Real()->WallNow() + life;
    const GrpcCredentials brief = CredentialsOf(
        certificates_.Of(PeerRole::kWorker, absl::StrCat(absl::ToInt64Seconds(life)), end));
    const absl::Status early = Exchange(*server, brief);
    if (!early.ok() && Clock::Real()->WallNow() >= end - absl::Seconds(1)) continue;
    EXPECT_TRUE(early.ok()) << early;
    Clock::Real()->Sleep(end + absl::Seconds(1) - Clock::Real()->WallNow());
    EXPECT_EQ(Exchange(*server, brief).code(), absl::StatusCode::kUnavailable);
    break;
  }
}

// A connection with TLS of this version, which resumes `earlier` unless that is null. It ends once
// the server has sent its first bytes, and with them any tickets.
struct TlsConnection {
  TlsConnection(SSL_CTX* context, const GrpcStreamServer& server, int version,
                SSL_SESSION* earlier) {
    const FileDescriptor fd(ConnectTo(server.port()));
    const TlsSession session(SSL_new(context));
    SSL_clear_options(session.get(), SSL_OP_NO_TICKET);  // the rules hold for this process too
    SSL_set_fd(session.get(), fd.get());
    SSL_set_max_proto_version(session.get(), version);
    static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    SSL_set_alpn_protos(session.get(), kHttp2, sizeof(kHttp2));
    if (earlier != nullptr) SSL_set_session(session.get(), earlier);
    EXPECT_EQ(SSL_connect(session.get()), 1);
    char byte;
    EXPECT_EQ(SSL_read(session.get(), &byte, 1), 1);  // of the server's settings
    resumed = SSL_session_reused(session.get()) == 1;
    ticket.reset(SSL_get1_session(session.get()));
    SSL_shutdown(session.get());  // otherwise OpenSSL takes the session for a bad one
  }
  bool resumed = false;
  std::unique_ptr<SSL_SESSION, OpensslFree<SSL_SESSION_free>> ticket;
};

TEST_F(GrpcCredentialsTest, NoSessionIsResumed) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver));
  const TlsContext context = TlsClient(certificates_.Of(PeerRole::kWorker, "3"));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const TlsConnection first(context.get(), *server, version, nullptr);
    EXPECT_EQ(SSL_SESSION_has_ticket(first.ticket.get()), 0);
    const TlsConnection second(context.get(), *server, version, first.ticket.get());
    EXPECT_FALSE(second.resumed) << version;
  }
}

TEST_F(GrpcCredentialsTest, ReplacedFilesAreUsedWithoutARestart) {
  const auto server = Serve(certificates_.Of(PeerRole::kPserver));
  const TlsFiles files = certificates_.Of(PeerRole::kWorker, "");
  const GrpcCredentials credentials = CredentialsOf(files);
  EXPECT_TRUE(Exchange(*server, credentials).ok());
  EXPECT_EQ(peer_.name, "");
  const TlsFiles renewed = certificates_.Of(PeerRole::kWorker, "5");
  std::filesystem::rename(renewed.key, files.key);
  std::filesystem::rename(renewed.cert, files.cert);
  for (int i = 0; i < 600 && peer_.name != "5"; ++i) {
    Clock::Real()->Sleep(absl::Milliseconds(100));
    (void)Exchange(*server, credentials);  // may fail while one of the two files is the old one
  }
  EXPECT_EQ(peer_.name, "5") << "a minute after its files were replaced";
}

TEST_F(GrpcCredentialsTest, SessionsPreferAes128AndKeepTheOtherCiphers) {
  CredentialsOf(certificates_.Of(PeerRole::kWorker));
  CredentialsOf(certificates_.Of(PeerRole::kWorker));  // the second ones change nothing
  const TlsContext context(SSL_CTX_new(TLS_method()));
  const TlsSession session(SSL_new(context.get()));
  std::vector<std::string> names;
  for (int i = 0; i < sk_SSL_CIPHER_num(SSL_get_ciphers(session.get())); ++i)
    names.emplace_back(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(SSL_get_ciphers(session.get()), i)));
  ASSERT_GT(names.size(), 3u) << "those of TLS 1.2 stay, too";
  names.resize(3);
  EXPECT_THAT(names, ElementsAre("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
                                 "TLS_CHACHA20_POLY1305_SHA256"));
}

TEST_F(GrpcCredentialsTest, CiphersThatWereChosenStay) {
  CredentialsOf(certificates_.Of(PeerRole::kWorker));
  const TlsContext context(SSL_CTX_new(TLS_method()));
  ASSERT_EQ(SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_256_GCM_SHA384"), 1);
  const TlsSession session(SSL_new(context.get()));
  EXPECT_STREQ(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(SSL_get_ciphers(session.get()), 0)),
               "TLS_AES_256_GCM_SHA384");
  for (int i = 0; i < sk_SSL_CIPHER_num(SSL_get_ciphers(session.get())); ++i) {
    EXPECT_STRNE(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(SSL_get_ciphers(session.get()), i)),
                 "TLS_AES_128_GCM_SHA256");
  }
}

}  // namespace
}  // namespace sluice
