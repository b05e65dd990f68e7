#include "common/admin/exchange_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "tests/common/admin/http_connection.h"
#include "tests/common/admin/local_listener.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr char kExchangeLoopRequest[] = "GET /page HTTP/1.1\r\n\r\n";
constexpr char kSlow[] = "GET /slow HTTP/1.1\r\n\r\n";
constexpr char kLarge[] = "GET /large HTTP/1.1\r\n\r\n";

// A loop with a listener. Pages: /large is large, /slow waits for Release, and others are small.
class ExchangeLoopTest : public testing::Test {
 protected:
  ~ExchangeLoopTest() override {
    Release();
    loop_.reset();
  }

  void Start(ExchangeLoop::Limits limits) {
    ExchangeLoop::Work work;
    work.answer = [this](const HttpExchange& exchange) { return Answer(exchange); };
    work.on_refused = [this](const HttpRefusal& refusal) {
      MutexLock lock(&mutex_);
      refusals_.push_back(refusal);
      changed_.NotifyAll();
    };
    loop_ = std::make_unique<ExchangeLoop>(limits, std::move(work));
  }
  std::unique_ptr<HttpConnection> Connect() {
    auto client = std::make_unique<HttpConnection>(listener_.port());
    loop_->Add(listener_.Accept());
    return client;
  }
  void EndLoop() { loop_.reset(); }
  void Release() {
    MutexLock lock(&mutex_);
    released_ = true;
    changed_.NotifyAll();
  }
  std::vector<HttpRefusal> AwaitRefusals(size_t n) {
    auto refusals =
        Await([this, n]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return refusals_.size() >= n; });
    refusals.resize(std::max(n, refusals.size()));  // empty ones, when they have not come
    return refusals;
  }
  // Waits until so many pages have been asked for.
  void AwaitPages(int n) {
    Await([this, n]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return pages_ >= n; });
  }

 private:
  template <typename Condition>
  std::vector<HttpRefusal> Await(const Condition& condition) {
    const absl::Time end = Clock::Real()->Now() + absl::Seconds(20);
    MutexLock lock(&mutex_);
    while (!condition() && Clock::Real()->Now() < end)
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(100));
    EXPECT_TRUE(condition());
    return refusals_;
  }
  std::string Answer(const HttpExchange& exchange) {
    MutexLock lock(&mutex_);
    ++pages_;
    changed_.NotifyAll();
    if (exchange.request() == kLarge) return std::string(32 << 20, 'x');
    while (exchange.request() == kSlow && !released_) changed_.Wait(&mutex_);
    return "content";
  }

  const LocalListener listener_;
  Mutex mutex_;
  CondVar changed_;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  int pages_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<HttpRefusal> refusals_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ExchangeLoop> loop_;
};

TEST_F(ExchangeLoopTest, TheOldestConnectionWithoutARequestMakesRoom) {
  ExchangeLoop::Limits limits;
  limits.request_time = absl::Hours(1);
  limits.per_address = 3;
  Start(limits);
  const auto oldest = Connect();
  oldest->Send("GET /");  // a part of a request does not keep the place
  const auto second = Connect(), third = Connect(), newcomer = Connect();
  EXPECT_EQ(oldest->Receive(), "");
  const auto refusals = AwaitRefusals(1);
  EXPECT_EQ(refusals[0].method, kConnectMethod);
  EXPECT_EQ(refusals[0].reason, RefusalReason::kRoom);
  EXPECT_EQ(refusals[0].caller.address, "127.0.0.1:" + std::to_string(oldest->port()));
  for (const auto* client : {&newcomer, &third, &second}) {
    (*client)->Send(kExchangeLoopRequest);
    EXPECT_EQ((*client)->Receive(), "content");
  }
}

TEST_F(ExchangeLoopTest, ACompleteRequestKeepsItsPlace) {
  ExchangeLoop::Limits limits;
  limits.threads = 1;
  limits.per_address = 2;
  Start(limits);
  const auto first = Connect();
  first->Send(kSlow);
  AwaitPages(1);
  const auto second = Connect(), third = Connect();
  EXPECT_EQ(second->Receive(), "");
  Release();
  EXPECT_EQ(first->Receive(), "content");
  third->Send(kExchangeLoopRequest);
  EXPECT_EQ(third->Receive(), "content");
}

TEST_F(ExchangeLoopTest, AConnectionThatIsOverLeavesItsPlace) {
  ExchangeLoop::Limits limits;
  limits.per_address = 2;
  Start(limits);
  for (int i = 0; i < 5; ++i) {
    const auto client = Connect();
    client->Send(kExchangeLoopRequest);
    EXPECT_EQ(client->Receive(), "content");
  }
}

TEST_F(ExchangeLoopTest, WithoutRoomANewcomerIsRefused) {
  ExchangeLoop::Limits limits;
  limits.threads = 2;
  limits.per_address = 2;
  Start(limits);
  const auto first = Connect(), second = Connect();
  first->Send(kSlow);
  second->Send(kSlow);
  AwaitPages(2);
  const auto newcomer = Connect();
  EXPECT_EQ(newcomer->Receive(), "");
  EXPECT_EQ(AwaitRefusals(1)[0].caller.address, "127.0.0.1:" + std::to_string(newcomer->port()));
}

TEST_F(ExchangeLoopTest, ClientsThatDoNotReadHoldNoThreadAndTheOldestGivesWay) {
  ExchangeLoop::Limits limits;
  limits.threads = 1;
  limits.answers = 2;
  limits.answer_time = absl::Hours(1);
  Start(limits);
  std::vector<std::unique_ptr<HttpConnection>> stalled;
  for (int i = 0; i < 3; ++i) {
    stalled.push_back(Connect());
    stalled.back()->Send(kLarge);
    AwaitPages(i + 1);
  }
  const auto refusals = AwaitRefusals(1);
  EXPECT_THAT(refusals[0].why, HasSubstr("2 answers"));
  EXPECT_EQ(refusals[0].caller.address, "127.0.0.1:" + std::to_string(stalled[0]->port()));
  const auto client = Connect();
  client->Send(kExchangeLoopRequest);
  EXPECT_EQ(client->Receive(), "content");
}

TEST_F(ExchangeLoopTest, SilentConnectionsEndAtTheirTime) {
  ExchangeLoop::Limits limits;
  limits.request_time = absl::Milliseconds(50);
  Start(limits);
  const auto client = Connect();
  EXPECT_EQ(client->Receive(), "");
  EXPECT_EQ(AwaitRefusals(1)[0].method, kConnectMethod);
}

TEST_F(ExchangeLoopTest, ALoopThatEndsAnswersCompleteRequests) {
  Start({});
  const auto silent = Connect(), client = Connect();
  client->Send(kSlow);
  AwaitPages(1);
  Release();
  EndLoop();
  EXPECT_EQ(client->Receive(), "content");
  EXPECT_EQ(silent->Receive(), "");
}

}  // namespace
}  // namespace sluice
