#include "common/admin/admin_server.h"

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <atomic>
#include <csignal>
#include <random>
#include <stdexcept>

#include "common/base/env.h"
#include "common/config/address.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/scheduler.pb.h"
#include "tests/common/admin/http_connection.h"
#include "tests/common/security/other_user.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/security/tls_client.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Sends `bytes` and returns everything that comes back until the server closes. With `half_close`
// the server sees the end of the bytes at once; the library then answers nothing.
std::string Exchange(const AdminServer& server, const std::string& bytes, bool half_close = true) {
  HttpConnection client(ParseAddress(server.address())->port);
  client.Send(bytes);  // the server may close before it has read all
  if (half_close) client.EndSending();
  return client.Receive();
}

std::string Get(const AdminServer& server, const std::string& path) {
  return Exchange(server, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n", false);
}

// The same over TLS.
std::string Get(const AdminServer& server, const std::string& path, SSL_CTX* tls) {
  HttpConnection client(ParseAddress(server.address())->port, tls);
  client.Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  return client.Receive();
}

// Waits for the line of a refusal, which another thread writes.
bool AwaitRefusal(RecordedAudit* audit, const std::string& method, const std::string& reason) {
  return audit->AwaitText("\"method\": \"" + method + "\", \"reason\": \"" + reason + "\"");
}

std::unique_ptr<AdminServer> Start(AdminServer::Options options) {
  auto server = AdminServer::Start(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(AdminServerTest, ReadyzNamesTheReasonUntilReady) {
  std::atomic<bool> ready{false};
  AdminServer::Options options;
  options.ready = [&ready] {
    return ready ? absl::OkStatus() : absl::UnavailableError("pserver 1 is missing");
  };
  const auto server = Start(std::move(options));
  EXPECT_THAT(Get(*server, "/livez"), HasSubstr("200"));
  EXPECT_THAT(Get(*server, "/readyz"),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("pserver 1 is missing")));
  ready = true;
  EXPECT_THAT(Get(*server, "/readyz"), StartsWith("HTTP/1.1 200"));
}

TEST(AdminServerTest, OnLoopbackOnlyRequestsToThisHostAreAnswered) {
  RecordedAudit audit("pserver");
  AdminServer::Options options;
  options.audit = audit.log();
  const auto server = Start(std::move(options));
  const auto ask = [&](const std::string& header) {
    return Exchange(*server, "GET /metrics HTTP/1.1\r\n" + header + "\r\n", false);
  };
  for (const char* host : {"", "Host: LocalHost:7\r\n", "Host: 127.0.0.1\r\n", "Host: [::1]:80\r\n",
                           "Host: 10.1.2.3:80\r\n"})
    EXPECT_THAT(ask(host), StartsWith("HTTP/1.1 200")) << host;
  // A page of this site would otherwise be of the same origin.
  EXPECT_THAT(ask("Host: rebound.example:80\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_TRUE(AwaitRefusal(&audit, "/metrics", "invalid"));
}

TEST(AdminServerTest, MetricsAreRefreshedAndSerialized) {
  AdminServer::Options options;
  options.registry = std::make_shared<prometheus::Registry>();
  auto& family = prometheus::BuildCounter()
                     .Name("sluice_pserver_frames_applied_total")
                     .Help("Frames applied.")
                     .Register(*options.registry);
  auto& counter = family.Add({{"job", "adult-1"}});
  options.refresh_metrics = [&counter] { counter.Increment(3); };
  const auto server = Start(std::move(options));
  EXPECT_THAT(Get(*server, "/metrics"),
              AllOf(HasSubstr("# HELP sluice_pserver_frames_applied_total Frames applied."),
                    HasSubstr("sluice_pserver_frames_applied_total{job=\"adult-1\"} 3")));
}

TEST(AdminServerTest, CountersFollowTheAuditLog) {
  RecordedAudit audit("scheduler");
  AdminServer::Options options;
  options.audit = audit.log();
  options.registry = std::make_shared<prometheus::Registry>();
  const auto server = Start(std::move(options));
  EXPECT_THAT(Get(*server, "/metrics"),
              HasSubstr("sluice_scheduler_actions_total{action=\"cancel\"} 0\n"));
  const AuditedCaller caller = CallerOf(PeerIdentity(), "a:1");
  for (int i = 0; i < 2; ++i) {
    audit.log()->Refused(caller, "/sluice.Scheduler/CancelJob", RefusalReason::kRole, "");
    audit.log()->Acted(caller, AuditedAction::kCancel, "job", absl::OkStatus());
    const std::string n = std::to_string(i + 1) + "\n";
    EXPECT_THAT(
        Get(*server, "/metrics"),
        AllOf(HasSubstr("sluice_scheduler_refusals_total{method=\"/sluice.Scheduler/CancelJob\","
                        "reason=\"role\"} " +
                        n),
              HasSubstr("sluice_scheduler_actions_total{action=\"cancel\"} " + n),
              HasSubstr("sluice_scheduler_audit_lines_lost_total 0\n")));
  }
}

TEST(AdminServerTest, OnlyTheSchedulerCountsOrders) {
  RecordedAudit audit("worker");
  AdminServer::Options options;
  options.audit = audit.log();
  options.registry = std::make_shared<prometheus::Registry>();
  const auto server = Start(std::move(options));
  EXPECT_THAT(Get(*server, "/metrics"), AllOf(HasSubstr("sluice_worker_audit_lines_lost_total 0\n"),
                                              Not(HasSubstr("actions"))));
}

TEST(AdminServerTest, StatusIsTextAndJson) {
  AdminServer::Options options;
  options.status_text = [] { return std::string("two pservers\n"); };
  options.status = [] {
    auto status = std::make_unique<ClusterStatus>();
    status->add_members()->set_admin_address("127.0.0.1:1");
    return status;
  };
  const auto server = Start(std::move(options));
  EXPECT_THAT(Get(*server, "/statusz"), HasSubstr("two pservers"));
  EXPECT_THAT(
      Get(*server, "/api/v1/status"),
      AllOf(HasSubstr("application/json"), HasSubstr("\"admin_address\": \"127.0.0.1:1\"")));
  EXPECT_THAT(Get(*server, "/nothing"), StartsWith("HTTP/1.1 404"));
}

TEST(AdminServerTest, ABrowserGetsLinksAndAProgramPlainText) {
  AdminServer::Options options;
  options.status_text = [] { return std::string("a <b> & c\n"); };
  const auto server = Start(std::move(options));
  for (const char* path : {"/", "/statusz"}) {
    EXPECT_THAT(Get(*server, path), testing::Not(HasSubstr("href"))) << path;
    const std::string page = Exchange(*server,
                                      std::string("GET ") + path +
                                          " HTTP/1.1\r\nHost: localhost\r\nAccept: "
                                          "text/html,application/xhtml+xml\r\n\r\n",
                                      false);
    for (const char* linked : {"/statusz", "/metrics", "/api/v1/status"})
      EXPECT_THAT(page, HasSubstr(std::string("<a href=\"") + linked + "\">")) << path;
  }
  EXPECT_THAT(Get(*server, "/statusz"), HasSubstr("a <b> & c\n"));
  EXPECT_THAT(
      Exchange(*server, "GET /statusz HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
               false),
      HasSubstr("a &lt;b&gt; &amp; c\n"));
}

TEST(AdminServerTest, PagesOfTheDaemonMayLoadNothingFromElsewhere) {
  AdminServer::Options options;
  options.page = [](const AdminServer::PageQuery& query) -> std::optional<AdminServer::Page> {
    if (query.path == "/api/v1/jobs/a 1") return AdminServer::Page{"n=" + query.parameter("n")};
    if (query.path == "/") return AdminServer::Page{"own", "text/html; charset=utf-8"};
    if (query.path == "/page/x") return AdminServer::Page{"not here", "text/plain", 404};
    return std::nullopt;
  };
  const auto server = Start(std::move(options));
  EXPECT_THAT(Get(*server, "/api/v1/jobs/a%201?n=7"),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("application/json"), HasSubstr("n=7")));
  EXPECT_THAT(Get(*server, "/"), AllOf(HasSubstr("own"), HasSubstr("default-src 'none'"),
                                       HasSubstr("frame-ancestors 'none'"), HasSubstr("nosniff"),
                                       Not(HasSubstr("unsafe"))));
  EXPECT_THAT(Get(*server, "/page/x"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get(*server, "/page/y"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get(*server, "/livez"), HasSubstr("ok"));
}

TEST(AdminServerTest, AnswersAreCompressedWithGzipAlone) {
  AdminServer::Options options;
  options.status_text = [] { return std::string(10'000, 'x'); };
  const auto server = Start(std::move(options));
  const auto ask = [&](const std::string& accepted) {
    return Exchange(*server,
                    "GET /statusz HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: " + accepted +
                        "\r\n\r\n",
                    false);
  };
  EXPECT_THAT(ask("gzip, deflate, br"), HasSubstr("Content-Encoding: gzip"));
  EXPECT_THAT(ask("br"), AllOf(Not(HasSubstr("Content-Encoding")), HasSubstr("xxxxxxxxxx")));
}

TEST(AdminServerTest, WithoutCallbacksEveryPageAnswers) {
  const auto server = Start({});
  for (const char* path : {"/", "/livez", "/readyz", "/statusz", "/metrics", "/api/v1/status"}) {
    EXPECT_THAT(Get(*server, path), StartsWith("HTTP/1.1 200")) << path;
  }
}

TEST(AdminServerTest, RandomBytesAndOversizedRequestsDoNotStopTheServer) {
  AdminServer::Options options;
  options.status_text = []() -> std::string { throw std::runtime_error("boom"); };
  const auto server = Start(std::move(options));
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    std::string bytes(random() % 3000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    Exchange(*server, bytes);
  }
  Exchange(*server, "GET /" + std::string(100000, 'a') + " HTTP/1.1\r\n\r\n");
  Exchange(*server, "GET /livez HTTP/1.1\r\nRange: bytes=0-1" + std::string(8000, ',') + "\r\n\r\n",
           false);
  Exchange(*server, "GET /livez HTTP/1.1\r\nRange: bytes=0-1" + std::string(7000, '1') + "\r\n\r\n",
           false);
  Exchange(*server, "POST /livez HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nxx");
  EXPECT_THAT(Get(*server, "/statusz"), StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(Get(*server, "/livez"), StartsWith("HTTP/1.1 200"));
}

// A server with TLS.
class AdminServerTlsTest : public testing::Test {
 protected:
  AdminServerTlsTest() {
    AdminServer::Options options;
    options.tls = certificates_.Of(PeerRole::kScheduler);
    options.env = Env::Real();
    options.audit = audit_.log();
    options.registry = std::make_shared<prometheus::Registry>();
    options.ready = [] { return absl::UnavailableError("pserver 1 at 10.0.0.1 is missing"); };
    server_ = Start(std::move(options));
    TlsFiles only_ca;
    only_ca.ca = certificates_.Of(PeerRole::kOperator).ca;
    nobody_ = TlsClient(only_ca);
    operator_ = TlsClient(certificates_.Of(PeerRole::kOperator, "alice"));
  }

  TestCertificates certificates_{"admin_server"};
  RecordedAudit audit_{"scheduler"};
  TlsContext nobody_, operator_;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTlsTest, OperatorsReadEveryPage) {
  EXPECT_EQ(server_->url(), "https://" + server_->address());
  for (const char* path : {"/", "/livez", "/statusz", "/metrics", "/api/v1/status"})
    EXPECT_THAT(Get(*server_, path, operator_.get()), StartsWith("HTTP/1.1 200")) << path;
  EXPECT_THAT(Get(*server_, "/readyz", operator_.get()),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("pserver 1")));
  EXPECT_EQ(audit_.Text(), "");
}

TEST_F(AdminServerTlsTest, WithoutACertificateThereIsHealthWithoutReasons) {
  EXPECT_THAT(Get(*server_, "/livez", nobody_.get()), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(
      Get(*server_, "/readyz", nobody_.get()),
      AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("not ready\n"), Not(HasSubstr("10.0.0.1"))));
  EXPECT_EQ(audit_.Text(), "");
  for (const char* path : {"/", "/statusz", "/metrics", "/api/v1/status"}) {
    EXPECT_THAT(Get(*server_, path, nobody_.get()), StartsWith("HTTP/1.1 403")) << path;
    EXPECT_EQ(audit_.AwaitRefusals(path, "certificate", 1), 1) << path;
  }
  // Refusals are counted without the names in the path.
  for (const char* path : {"/api/v1/jobs/adult-1", "/api/v1/jobs/adult-2/curves"})
    EXPECT_THAT(Get(*server_, path, nobody_.get()), StartsWith("HTTP/1.1 403")) << path;
  EXPECT_EQ(audit_.AwaitRefusals("/api/v1/jobs/", "certificate", 2), 2);
  EXPECT_THAT(Get(*server_, "/nothing", nobody_.get()), StartsWith("HTTP/1.1 403"));
  EXPECT_EQ(audit_.AwaitRefusals("other", "certificate", 1), 1);
  EXPECT_TRUE(audit_.AwaitText("\"role\": \"none\""));
}

TEST_F(AdminServerTlsTest, OtherRolesReadHealthAlone) {
  for (const PeerRole role : {PeerRole::kWorker, PeerRole::kPserver, PeerRole::kScheduler}) {
    const TlsContext tls = TlsClient(certificates_.Of(role, "7"));
    EXPECT_THAT(Get(*server_, "/livez", tls.get()), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(Get(*server_, "/readyz", tls.get()), Not(HasSubstr("10.0.0.1")));
    for (const char* path : {"/", "/statusz", "/metrics", "/api/v1/status"})
      EXPECT_THAT(Get(*server_, path, tls.get()), StartsWith("HTTP/1.1 403")) << path;
    EXPECT_TRUE(audit_.AwaitText(std::string("\"reason\": \"role\", \"role\": \"") +
                                 PeerRoleName(role) + "\", \"name\": \"7\""));
  }
  EXPECT_EQ(audit_.AwaitRefusals("/metrics", "role", 3), 3);
}

TEST_F(AdminServerTlsTest, FailedHandshakesAreRecordedAndShowInTheMetrics) {
  EXPECT_THAT(Exchange(*server_, "GET /livez HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  ASSERT_TRUE(AwaitRefusal(&audit_, "handshake", "handshake"));
  EXPECT_THAT(audit_.Text(), HasSubstr("\"address\": \"127.0.0.1:"));
  EXPECT_THAT(
      Get(*server_, "/metrics", operator_.get()),
      HasSubstr("sluice_scheduler_refusals_total{method=\"handshake\",reason=\"handshake\"} 1"));
}

TEST(AdminServerTest, RefusedRequestsAreRecordedAndCounted) {
  RecordedAudit audit("pserver");
  AdminServer::Options options;
  options.audit = audit.log();
  options.registry = std::make_shared<prometheus::Registry>();
  const auto server = Start(std::move(options));
  Exchange(*server, "DELETE /statusz HTTP/1.1\r\n\r\n", false);
  Exchange(*server, "GET /" + std::string(100000, 'a'), false);
  EXPECT_TRUE(AwaitRefusal(&audit, "/statusz", "invalid"));
  EXPECT_TRUE(AwaitRefusal(&audit, "request", "invalid"));
  EXPECT_THAT(audit.Text(), AllOf(HasSubstr("DELETE"), HasSubstr("\"role\": \"unverified\"")));
  EXPECT_THAT(
      Get(*server, "/metrics"),
      AllOf(HasSubstr("sluice_pserver_refusals_total{method=\"/statusz\",reason=\"invalid\"} 1"),
            HasSubstr("sluice_pserver_refusals_total{method=\"request\",reason=\"invalid\"} 1")));
}

// Returns what another user of this host gets from /livez: 0 when nothing, else the first digit of
// the status.
int StatusAsNobody(const AdminServer& server) {
  int result[2];
  EXPECT_EQ(pipe(result), 0);
  const int port = ParseAddress(server.address())->port;
  ProcessOfUser process(kNobody, [&] {
    const std::string answer = [&] {
      HttpConnection client(port);
      client.Send("GET /livez HTTP/1.1\r\n\r\n");
      return client.Receive();
    }();
    const char digit = answer.size() > 9 ? answer[9] : '0';
    (void)!write(result[1], &digit, 1);
  });
  char digit = '?';
  EXPECT_EQ(read(result[0], &digit, 1), 1);
  process.Join();
  close(result[0]);
  close(result[1]);
  return digit - '0';
}

TEST(AdminServerTest, OtherUsersOfTheHostAreClosedOutUnlessAllMayConnect) {
  if (geteuid() != 0) GTEST_SKIP() << "the test does not run as root";
  RecordedAudit audit("pserver");
  AdminServer::Options options;
  options.audit = audit.log();
  const auto server = Start(options);
  EXPECT_EQ(StatusAsNobody(*server), 0);
  EXPECT_TRUE(AwaitRefusal(&audit, "connect", "user"));
  EXPECT_THAT(audit.Text(), HasSubstr("user 65534"));
  EXPECT_THAT(Get(*server, "/livez"), StartsWith("HTTP/1.1 200"));
  options.any_local_user = true;
  EXPECT_EQ(StatusAsNobody(*Start(options)), 2);
}

TEST(AdminServerTest, WrongFilesOfTlsAreRefused) {
  AdminServer::Options options;
  options.tls = {"nothing", "nothing", "nothing"};
  options.env = Env::Real();
  EXPECT_EQ(AdminServer::Start(std::move(options)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(AdminServerTest, PortInUseIsRefusedWithItsAddressAndTheFix) {
  const auto first = Start({});
  AdminServer::Options options;
  options.bind = first->address();
  const auto second = AdminServer::Start(std::move(options));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(first->address()), HasSubstr("--admin_bind")));
  AdminServer::Options bad;
  bad.bind = "nonsense";
  EXPECT_EQ(AdminServer::Start(std::move(bad)).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
