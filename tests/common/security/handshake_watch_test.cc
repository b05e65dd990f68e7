// Clients of a GrpcStreamServer whose TLS handshakes fail.
#include "common/security/handshake_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>

#include <atomic>

#include "absl/strings/str_split.h"
#include "common/transport/grpc_transport.h"
#include "tests/common/admin/http_connection.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/security/tls_client.h"
#include "tests/common/transport/grpc_servers.h"
#include "tests/common/transport/recording_streams.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HandshakeWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    GrpcStreamServer::Options options;
    auto credentials = GrpcCredentials::Create(certificates_.Of(PeerRole::kPserver));
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    options.credentials = *std::move(credentials);
    options.audit = audit_.log();
    server_ = StartServer(
        [this](std::shared_ptr<Stream> stream, const PeerIdentity& peer) {
          ++streams_;
          return scripted_.factory()(std::move(stream), peer);
        },
        options);
  }
  // Waits for the line of refusal `n`.
  std::string AwaitLine(uint64_t n) {
    const absl::Time end = Clock::Real()->Now() + absl::Seconds(60);
    std::vector<std::string> lines;
    while (lines.size() < n && Clock::Real()->Now() < end) {
      Clock::Real()->Sleep(absl::Milliseconds(5));
      lines = absl::StrSplit(audit_.Text(), '\n', absl::SkipEmpty());
    }
    EXPECT_EQ(lines.size(), n);
    EXPECT_EQ(audit_.Refusals(kHandshakeMethod, "handshake"), n);
    return lines.empty() ? "" : lines.back();
  }
  // The line that a client with this context leaves. Its handshake is tried to the end.
  std::string Refused(SSL_CTX* context) {
    int port = 0;
    {
      SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>("\x02h2"), 3);
      HttpConnection client(server_->port(), context);
      client.Send("x");
      client.Receive();
      port = client.port();
    }
    ERR_clear_error();
    const std::string line = AwaitLine(++refused_);
    EXPECT_THAT(line, AllOf(HasSubstr("\"method\": \"handshake\", \"reason\": \"handshake\", "
                                      "\"role\": \"none\""),
                            HasSubstr(absl::StrCat("\"address\": \"127.0.0.1:", port, "\""))));
    return line;
  }
  TlsFiles WithOwnCa(TlsFiles files) {
    files.ca = certificates_.Of(PeerRole::kWorker).ca;
    return files;
  }

  TestCertificates certificates_{"handshake_watch"};
  RecordedAudit audit_{"pserver"};
  ScriptedServer scripted_{Echo};
  std::atomic<int> streams_{0};
  std::unique_ptr<GrpcStreamServer> server_;
  uint64_t refused_ = 0;
};

TEST_F(HandshakeWatchTest, RefusedClientsAreRecordedWithCauseAndAddress) {
  const TestCertificates others("handshake_watch_others");
  const absl::Time past = Clock::Real()->WallNow() - absl::Minutes(1);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsFiles no_certificate;
    no_certificate.ca = certificates_.Of(PeerRole::kWorker).ca;
    TlsContext client = TlsClient(no_certificate);
    SSL_CTX_set_max_proto_version(client.get(), version);
    EXPECT_THAT(Refused(client.get()), HasSubstr("no certificate"));

    client = TlsClient(WithOwnCa(others.Of(PeerRole::kWorker)));
    SSL_CTX_set_max_proto_version(client.get(), version);
    EXPECT_THAT(Refused(client.get()),
                AllOf(HasSubstr("is refused"), HasSubstr("--tls_ca"), Not(HasSubstr("expired"))));

    client = TlsClient(certificates_.Of(PeerRole::kWorker, "old", past));
    SSL_CTX_set_max_proto_version(client.get(), version);
    EXPECT_THAT(Refused(client.get()), AllOf(HasSubstr("is refused"), HasSubstr("expired")));
  }
  TlsContext client = TlsClient(certificates_.Of(PeerRole::kWorker));
  SSL_CTX_set_security_level(client.get(), 0);  // else the client itself would refuse
  SSL_CTX_set_min_proto_version(client.get(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(client.get(), TLS1_1_VERSION);
  EXPECT_THAT(Refused(client.get()), HasSubstr("TLS 1.2"));

  client = TlsClient(others.Of(PeerRole::kWorker));  // trusts the other authority alone
  EXPECT_THAT(Refused(client.get()), HasSubstr("refused this server's certificate"));
  EXPECT_EQ(streams_, 0);
}

TEST_F(HandshakeWatchTest, ClientsThatSpeakNoTlsOrGiveUpAreRecorded) {
  SendBytes(server_->port(), "GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(AwaitLine(1), HasSubstr("does not speak TLS"));
  SendBytes(server_->port(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_THAT(AwaitLine(2), HasSubstr("does not speak TLS"));
  SendBytes(server_->port(), std::string("\x16\x03\x01\x02\x00\x01", 6));  // the begin of a hello
  EXPECT_THAT(AwaitLine(3), HasSubstr("closed the connection"));
}

TEST_F(HandshakeWatchTest, ServedClientsAndProbesAreNotRecorded) {
  close(ConnectTo(server_->port()));
  auto credentials = GrpcCredentials::Create(certificates_.Of(PeerRole::kWorker));
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  GrpcTransport::Options options;
  options.credentials = *std::move(credentials);
  {
    GrpcTransport transport(options);
    RecordingClient client(&transport, AddressOf(*server_));
    client.Send("x");
    EXPECT_TRUE(client.AwaitMessageOrEnd(1)) << client.status();
    client.Destroy();
  }
  SendBytes(server_->port(), "x");  // comes after them
  AwaitLine(1);
  EXPECT_EQ(streams_, 1);
}

// A pserver is a client too.
TEST_F(HandshakeWatchTest, HandshakesThatThisProcessBeginsAreNotRecorded) {
  const TestCertificates others("handshake_watch_others");
  auto theirs = GrpcCredentials::Create(others.Of(PeerRole::kPserver));
  auto ours = GrpcCredentials::Create(certificates_.Of(PeerRole::kWorker));
  ASSERT_TRUE(theirs.ok() && ours.ok());
  GrpcStreamServer::Options options;
  options.credentials = *std::move(theirs);
  const auto server = StartServer(scripted_.factory(), options);
  GrpcTransport::Options to;
  to.credentials = *std::move(ours);
  {
    GrpcTransport transport(to);
    RecordingClient client(&transport, AddressOf(*server));
    ASSERT_TRUE(client.AwaitClosed());
    client.Destroy();
  }
  AwaitLine(1);  // of the other server: its client has gone
  EXPECT_THAT(audit_.Text(), Not(HasSubstr("the client's certificate is refused")));
}

TEST_F(HandshakeWatchTest, ADestroyedWatchIsNotTold) {
  std::atomic<int> told{0}, kept{0};
  const HandshakeWatch other([&](const std::string&, const std::string&) { ++kept; });
  {
    const HandshakeWatch watch([&](const std::string&, const std::string&) { ++told; });
    SendBytes(server_->port(), "no TLS");
    AwaitLine(1);
    while (told == 0) Clock::Real()->Sleep(absl::Milliseconds(1));
  }
  SendBytes(server_->port(), "no TLS");
  AwaitLine(2);
  while (kept < 2) Clock::Real()->Sleep(absl::Milliseconds(1));
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace sluice
