#include "common/admin/http_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/env.h"
#include "tests/common/admin/http_connection.h"
#include "tests/common/admin/local_listener.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/security/tls_client.h"

namespace sluice {
namespace {

using Phase = HttpExchange::Phase;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kHttpExchangeRequest[] = "GET /page HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr char kAnswer[] = "HTTP/1.1 200 OK\r\n\r\nyes";

class HttpExchangeTest : public testing::Test {
 protected:
  void Connect(SSL_CTX* tls = nullptr) {
    client_ = std::make_unique<HttpConnection>(listener_.port(), tls);
    exchange_ = std::make_unique<HttpExchange>(listener_.Accept(), tls_.get(), limits_, now_);
  }
  void UseTls() {
    certificates_ = std::make_unique<TestCertificates>("http_exchange");
    TlsServer::Options options;
    options.files = certificates_->Of(PeerRole::kScheduler);
    options.clock = Clock::Real();
    options.env = Env::Real();
    auto tls = TlsServer::Create(std::move(options));
    ASSERT_TRUE(tls.ok()) << tls.status();
    tls_ = *std::move(tls);
  }
  // Waits until the socket is ready, and goes on. False when it does not become ready.
  bool Step() {
    pollfd at = {exchange_->fd(), exchange_->events(), 0};
    if (poll(&at, 1, 10'000) != 1) return false;
    exchange_->GoOn(now_);
    return true;
  }
  void StepsUntil(Phase phase) {
    while (exchange_->phase() != phase && exchange_->phase() != Phase::kOver && Step()) {
    }
    EXPECT_EQ(exchange_->phase(), phase);
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  HttpExchange::Limits limits_;
  LocalListener listener_;
  std::unique_ptr<TestCertificates> certificates_;
  std::unique_ptr<TlsServer> tls_;
  std::unique_ptr<HttpConnection> client_;
  std::unique_ptr<HttpExchange> exchange_;
};

TEST_F(HttpExchangeTest, ACompleteRequestAwaitsItsAnswer) {
  Connect();
  EXPECT_EQ(exchange_->phase(), Phase::kSilent);
  client_->Send("GET /page HTTP/1.1\r\nHost: x\r");
  StepsUntil(Phase::kRequest);
  client_->Send("\n\r");
  Step();
  EXPECT_EQ(exchange_->phase(), Phase::kRequest);
  client_->Send("\n");
  StepsUntil(Phase::kReady);
  EXPECT_EQ(exchange_->request(), kHttpExchangeRequest);
  exchange_->Answer(kAnswer, now_);
  EXPECT_EQ(exchange_->phase(), Phase::kOver);
  EXPECT_EQ(client_->Receive(), kAnswer);
  EXPECT_FALSE(exchange_->TakeRefusal().has_value());
}

TEST_F(HttpExchangeTest, WithTlsThereIsNoSessionBeforeTheFirstByte) {
  UseTls();
  const TlsContext context = TlsClient(certificates_->Of(PeerRole::kOperator));
  Connect(context.get());
  EXPECT_EQ(exchange_->tls(), nullptr);
  std::string answer;
  std::thread client([&] {
    client_->Send(kHttpExchangeRequest);
    answer = client_->Receive();
  });
  StepsUntil(Phase::kReady);
  ASSERT_NE(exchange_->tls(), nullptr);
  EXPECT_TRUE(PeerOf(*exchange_->tls()).ok());
  exchange_->Answer(kAnswer, now_);
  EXPECT_EQ(exchange_->phase(), Phase::kOver);
  exchange_.reset();
  client.join();
  EXPECT_EQ(answer, kAnswer);
}

TEST_F(HttpExchangeTest, ARequestThatIsTooLargeIsAnsweredAndItsRestDropped) {
  limits_.request_bytes = 1000;
  Connect();
  client_->Send("GET /page HTTP/1.1\r\nA: " + std::string(5000, 'a'));
  StepsUntil(Phase::kDrop);
  const auto refusal = exchange_->TakeRefusal();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->method, kRequestMethod);
  EXPECT_EQ(refusal->reason, RefusalReason::kInvalid);
  EXPECT_EQ(refusal->caller.role, "unverified");
  EXPECT_EQ(refusal->caller.address, "127.0.0.1:" + std::to_string(client_->port()));
  EXPECT_THAT(client_->Receive(), StartsWith("HTTP/1.1 431"));
  client_.reset();
  StepsUntil(Phase::kOver);
  EXPECT_FALSE(exchange_->TakeRefusal().has_value()) << "reported twice";
}

TEST_F(HttpExchangeTest, AClientThatNeverStopsSendingIsNotReadForEver) {
  limits_.request_bytes = 1000;
  Connect();
  std::thread sends([&] {
    while (client_->Send(std::string(64 << 10, 'a'))) {
    }
  });
  // Every step reads something, and 1 MiB is dropped at most. So many steps are far more than
  // enough.
  for (int steps = 0; steps < 10'000 && exchange_->phase() != Phase::kOver; ++steps)
    ASSERT_TRUE(Step());
  EXPECT_EQ(exchange_->phase(), Phase::kOver);
  exchange_.reset();  // ends the thread in any case
  sends.join();
}

TEST_F(HttpExchangeTest, TheDeadlineOfARequestIsNotExtendedByItsBytes) {
  Connect();
  const absl::Time deadline = exchange_->deadline();
  EXPECT_EQ(deadline, now_ + limits_.request_time);
  now_ += absl::Seconds(1);
  client_->Send("G");
  StepsUntil(Phase::kRequest);
  EXPECT_EQ(exchange_->deadline(), deadline);
  exchange_->Expire();
  EXPECT_EQ(exchange_->phase(), Phase::kOver);
  const auto refusal = exchange_->TakeRefusal();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->method, kRequestMethod);
  EXPECT_EQ(refusal->reason, RefusalReason::kRoom);
}

TEST_F(HttpExchangeTest, ASilentClientIsReportedAtItsDeadlineAndOneThatClosesIsNot) {
  Connect();
  exchange_->Expire();
  const auto refusal = exchange_->TakeRefusal();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->method, kConnectMethod);
  Connect();
  client_.reset();
  StepsUntil(Phase::kOver);
  EXPECT_FALSE(exchange_->TakeRefusal().has_value());
}

TEST_F(HttpExchangeTest, AnAnswerThatIsNotTakenEndsAtItsDeadline) {
  Connect();
  client_->Send(kHttpExchangeRequest);
  StepsUntil(Phase::kReady);
  now_ += absl::Hours(1);  // the owner has taken its time
  exchange_->Answer(std::string(64 << 20, 'x'), now_);
  EXPECT_EQ(exchange_->phase(), Phase::kAnswer);
  EXPECT_EQ(exchange_->events(), POLLOUT);
  EXPECT_EQ(exchange_->deadline(), now_ + limits_.answer_time);
  exchange_->Expire();
  const auto refusal = exchange_->TakeRefusal();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, RefusalReason::kRoom);
}

TEST_F(HttpExchangeTest, AHandshakeThatStopsIsReportedAsOne) {
  UseTls();
  Connect();
  // The header of a record with a ClientHello of 512 bytes, of which most do not come.
  client_->SendRaw(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
  StepsUntil(Phase::kHandshake);
  exchange_->Expire();
  const auto refusal = exchange_->TakeRefusal();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->method, kHandshakeMethod);
  EXPECT_EQ(refusal->caller.role, "none");
}

TEST_F(HttpExchangeTest, PlainHttpIsToldToUseTls) {
  UseTls();
  Connect();
  client_->SendRaw(kHttpExchangeRequest);
  StepsUntil(Phase::kDrop);
  EXPECT_THAT(client_->ReceiveRaw(), HasSubstr("https"));
  EXPECT_EQ(exchange_->TakeRefusal()->method, kHandshakeMethod);
}

}  // namespace
}  // namespace sluice
