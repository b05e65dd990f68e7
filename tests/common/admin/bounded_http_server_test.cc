#include "common/admin/bounded_http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/security/connection_listener.h"
#include "tests/common/admin/http_connection.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/security/tls_client.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kRequest[] = "GET /page HTTP/1.1\r\nHost: x\r\n\r\n";

// The parameter: whether the server speaks TLS.
class BoundedHttpServerTest : public testing::TestWithParam<bool> {
 protected:
  BoundedHttpServerTest() {
    access_.on_refused = [this](const HttpRefusal& refusal) {
      EXPECT_THAT(refusal.caller.address, StartsWith("127.0.0.1:"));
      MutexLock lock(&mutex_);
      refusals_.push_back(refusal);
      changed_.NotifyAll();
    };
    if (!GetParam()) return;
    certificates_ = std::make_unique<TestCertificates>("bounded_http_server");
    TlsServer::Options options;
    options.files = certificates_->Of(PeerRole::kScheduler);
    options.clock = Clock::Real();
    options.env = Env::Real();
    auto tls = TlsServer::Create(std::move(options));
    EXPECT_TRUE(tls.ok()) << tls.status();
    access_.tls = (tls_ = *std::move(tls)).get();
    client_ = TlsClient(certificates_->Of(PeerRole::kOperator));
  }
  ~BoundedHttpServerTest() override { Stop(); }

  std::unique_ptr<HttpConnection> Connect() {
    return std::make_unique<HttpConnection>(port_, client_.get());
  }
  // Waits until so many connections or requests were refused by this method.
  std::vector<HttpRefusal> AwaitRefusals(const std::string& method, size_t n) {
    const absl::Time end = Clock::Real()->Now() + absl::Seconds(20);
    MutexLock lock(&mutex_);
    for (;;) {
      std::vector<HttpRefusal> refusals;
      std::copy_if(refusals_.begin(), refusals_.end(), std::back_inserter(refusals),
                   [&](const HttpRefusal& refusal) { return refusal.method == method; });
      if (refusals.size() >= n || Clock::Real()->Now() > end) return refusals;
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(100));
    }
  }

  void Stop() {
    listener_.reset();
    server_.reset();
  }

  void Start(BoundedHttpServer::Limits limits) {
    server_ = std::make_unique<BoundedHttpServer>(limits, access_);
    server_->Get("/page", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("content", "text/plain");
    });
    server_->Get("/large", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(std::string(24 << 20, 'x'), "text/plain");
    });
    ConnectionListener::Options options;
    options.users.address = "127.0.0.1:0";
    options.users.any_local_user = true;
    auto listener = ConnectionListener::Listen(std::move(options));
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    port_ = listener_->port();
    listener_->Start(
        [this](FileDescriptor connection, const TcpEnd&) { server_->Add(std::move(connection)); });
  }

  std::unique_ptr<TestCertificates> certificates_;
  BoundedHttpServer::Access access_;
  std::unique_ptr<TlsServer> tls_;
  TlsContext client_;
  std::unique_ptr<BoundedHttpServer> server_;
  int port_ = 0;

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<HttpRefusal> refusals_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ConnectionListener> listener_;
};

TEST_P(BoundedHttpServerTest, AnEndlessHeaderIsRefused) {
  Start({});
  HttpConnection client(port_, client_.get());
  client.Send("GET /page HTTP/1.1\r\nX: ");
  size_t sent = 0;
  while (sent < (size_t{64} << 20) && client.Send(std::string(64 << 10, 'a'))) sent += 64 << 10;
  EXPECT_LT(sent, size_t{16} << 20) << "the server took " << sent << " bytes of one header";
}

TEST_P(BoundedHttpServerTest, ARequestThatIsTooLargeIsAnswered) {
  BoundedHttpServer::Limits limits;
  limits.request_bytes = 1000;
  Start(limits);
  const std::string begin = "GET /page HTTP/1.1\r\n";
  std::string headers;
  while (headers.size() < 2000) headers += "A: b\r\n";
  HttpConnection large(port_, client_.get());
  large.Send(begin + headers + "\r\n");
  EXPECT_THAT(large.Receive(), StartsWith("HTTP/1.1 431"));
  HttpConnection small(port_, client_.get());
  small.Send(begin + headers.substr(0, 600) + "\r\n");
  EXPECT_THAT(small.Receive(), StartsWith("HTTP/1.1 200"));
}

TEST_P(BoundedHttpServerTest, BytesThatDripInDoNotExtendTheTime) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Milliseconds(300);
  Start(limits);
  HttpConnection client(port_, client_.get());
  client.Send("GET /page HTTP/1.1\r\nX: ");
  bool taken = true;
  for (int i = 0; i < 3000 && taken; ++i) {
    taken = client.Send("a");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(taken) << "the connection is still open after 60 s";
}

TEST_P(BoundedHttpServerTest, SilentConnectionsMakeRoomForOthers) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Hours(1);
  Start(limits);
  std::vector<std::unique_ptr<HttpConnection>> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(Connect());
  HttpConnection client(port_, client_.get());
  client.Send(kRequest);
  EXPECT_THAT(client.Receive(), HasSubstr("content"));
}

TEST_P(BoundedHttpServerTest, SlowRequestsMakeRoomForOthers) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Hours(1);
  Start(limits);
  std::vector<std::unique_ptr<HttpConnection>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(Connect());
    slow.back()->Send("G");
  }
  HttpConnection client(port_, client_.get());
  client.Send(kRequest);
  EXPECT_THAT(client.Receive(), HasSubstr("content"));
}

TEST_P(BoundedHttpServerTest, RangesDoNotMultiplyTheAnswer) {
  Start({});
  HttpConnection client(port_, client_.get());
  client.Send("GET /page HTTP/1.1\r\nRange: bytes=0-6,0-6,0-6\r\n\r\n");
  const std::string answer = client.Receive();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(answer.find("content\r\n"), std::string::npos) << "parts: " << answer;
}

TEST_P(BoundedHttpServerTest, BeyondTheLimitTheOldestConnectionIsClosedAndReported) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Hours(1);
  limits.connections = limits.per_address = 2;
  Start(limits);
  HttpConnection oldest(port_, client_.get()), waits(port_, client_.get());
  HttpConnection newcomer(port_, client_.get());
  EXPECT_EQ(oldest.Receive(), "");
  newcomer.Send(kRequest);
  EXPECT_THAT(newcomer.Receive(), HasSubstr("content"));
  waits.Send(kRequest);
  EXPECT_THAT(waits.Receive(), HasSubstr("content"));
  const auto refusals = AwaitRefusals(kConnectMethod, 1);
  ASSERT_EQ(refusals.size(), 1);
  EXPECT_EQ(refusals[0].reason, RefusalReason::kRoom);
}

TEST_P(BoundedHttpServerTest, AClientThatDoesNotReadItsAnswerIsDropped) {
  BoundedHttpServer::Limits limits;
  limits.threads = 1;
  limits.answer_time = absl::Milliseconds(200);
  Start(limits);
  HttpConnection stalled(port_, client_.get());
  stalled.Send("GET /large HTTP/1.1\r\n\r\n");
  HttpConnection client(port_, client_.get());
  client.Send(kRequest);
  EXPECT_THAT(client.Receive(), HasSubstr("content"));
}

// select() would write beyond its set of descriptors, and a library that guards itself against that
// would answer 500. Idle connections at other ports of a daemon use up the low ones.
TEST_P(BoundedHttpServerTest, DescriptorsBeyondTheLimitOfSelectAreServed) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit enough = before;
  enough.rlim_cur = std::max<rlim_t>(before.rlim_cur, FD_SETSIZE + 200);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &enough), 0) << "the hard limit is " << before.rlim_max;
  std::vector<int> opened;
  for (int i = 0; i < 1100; ++i) opened.push_back(dup(STDERR_FILENO));
  EXPECT_GE(*std::max_element(opened.begin(), opened.end()), FD_SETSIZE);
  Start({});  // the listener's descriptor is beyond it too
  HttpConnection client(port_, client_.get());
  client.Send(kRequest);
  EXPECT_THAT(client.Receive(), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("content")));
  Stop();
  for (const int fd : opened) close(fd);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_P(BoundedHttpServerTest, OnlyGetAndHeadAreServed) {
  Start({});
  HttpConnection client(port_, client_.get());
  client.Send("POST /page HTTP/1.1\r\nContent-Length: 99999999999\r\nContent-Encoding: br\r\n\r\n");
  EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 405"));
  const auto refusals = AwaitRefusals("/page", 1);
  ASSERT_EQ(refusals.size(), 1);
  EXPECT_EQ(refusals[0].reason, RefusalReason::kInvalid);
  EXPECT_EQ(refusals[0].caller.role, GetParam() ? "operator" : "unverified");
  EXPECT_THAT(refusals[0].why, HasSubstr("POST"));
}

TEST_P(BoundedHttpServerTest, MalformedRequestsAreReported) {
  Start({});
  HttpConnection client(port_, client_.get());
  client.Send("nonsense\r\n\r\n");
  EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(AwaitRefusals(kRequestMethod, 1).size(), 1);
}

TEST_P(BoundedHttpServerTest, StopDoesNotWaitForSilentClients) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Hours(1);
  Start(limits);
  HttpConnection silent(port_, client_.get());
  HttpConnection client(port_, client_.get());
  client.Send(kRequest);
  client.Receive();  // the silent one is being served, too
  const absl::Time begin = Clock::Real()->Now();
  Stop();
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Minutes(1));
}

TEST_P(BoundedHttpServerTest, RequestsThatAreNotAdmittedGetTheReason) {
  access_.admit = [](const httplib::Request& request) {
    return request.path == "/page" ? absl::OkStatus() : absl::PermissionDeniedError("a reason");
  };
  Start({});
  HttpConnection allowed(port_, client_.get());
  allowed.Send(kRequest);
  EXPECT_THAT(allowed.Receive(), HasSubstr("content"));
  HttpConnection refused(port_, client_.get());
  refused.Send("GET /large HTTP/1.1\r\n\r\n");
  EXPECT_THAT(refused.Receive(), AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("a reason")));
}

INSTANTIATE_TEST_SUITE_P(, BoundedHttpServerTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Tls" : "Plain"; });

// What holds only with TLS.
class BoundedHttpsServerTest : public BoundedHttpServerTest {};

TEST_P(BoundedHttpsServerTest, HandlersSeeTheCertificateOfTheClient) {
  access_.admit = [](const httplib::Request& request) {
    const auto peer = PeerOf(*request.ssl);
    EXPECT_TRUE(peer.ok()) << peer.status();
    return peer.ok() && peer->role == PeerRole::kOperator ? absl::OkStatus()
                                                          : absl::PermissionDeniedError("no");
  };
  Start({});
  HttpConnection client(port_, client_.get());
  client.Send(kRequest);
  EXPECT_THAT(client.Receive(), HasSubstr("content"));
}

TEST_P(BoundedHttpsServerTest, HandshakesThatStopMakeRoomForOthers) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Hours(1);
  Start(limits);
  std::vector<std::unique_ptr<HttpConnection>> stopped;
  for (int i = 0; i < 8; ++i) {
    stopped.push_back(Connect());
    // The header of a record with a ClientHello of 512 bytes, of which most do not come.
    stopped.back()->SendRaw(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
  }
  HttpConnection client(port_, client_.get());
  client.Send(kRequest);
  EXPECT_THAT(client.Receive(), HasSubstr("content"));
}

TEST_P(BoundedHttpsServerTest, BytesThatDripIntoAHandshakeDoNotExtendTheTime) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Milliseconds(300);
  Start(limits);
  HttpConnection client(port_);
  client.SendRaw(std::string("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", 11));
  bool taken = true;
  for (int i = 0; i < 3000 && taken; ++i) {
    taken = client.SendRaw("a");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(taken) << "the connection is still open after 60 s";
}

TEST_P(BoundedHttpsServerTest, PlainHttpIsToldToUseTls) {
  Start({});
  HttpConnection client(port_);
  client.SendRaw(kRequest);
  EXPECT_THAT(client.ReceiveRaw(), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("https")));
  EXPECT_EQ(AwaitRefusals(kHandshakeMethod, 1).size(), 1);
}

TEST_P(BoundedHttpsServerTest, GarbageAndForeignCertificatesAreReportedAndProbesAreNot) {
  Start({});
  { HttpConnection probe(port_); }  // closes at once
  HttpConnection garbage(port_);
  garbage.SendRaw(std::string(3000, '\x80'));
  garbage.ReceiveRaw();
  EXPECT_EQ(AwaitRefusals(kHandshakeMethod, 1).size(), 1);
  const TestCertificates others("bounded_http_server_others");
  TlsFiles files = others.Of(PeerRole::kOperator);
  files.ca = certificates_->Of(PeerRole::kOperator).ca;
  const TlsContext foreign = TlsClient(files);
  HttpConnection stranger(port_, foreign.get());
  stranger.Send(kRequest);
  EXPECT_EQ(stranger.Receive(), "");
  const std::vector<HttpRefusal> failures = AwaitRefusals(kHandshakeMethod, 2);
  ASSERT_EQ(failures.size(), 2);
  EXPECT_THAT(failures[1].why, HasSubstr("certificate"));
}

INSTANTIATE_TEST_SUITE_P(, BoundedHttpsServerTest, testing::Values(true),
                         [](const auto&) { return "Tls"; });

}  // namespace
}  // namespace sluice
