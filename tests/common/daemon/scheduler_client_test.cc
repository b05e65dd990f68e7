#include "common/daemon/scheduler_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/security/grpc_credentials.h"
#include "common/transport/grpc_convert.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/common/base/free_port.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/transport/cutting_relay.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A scheduler that answers with its own name, unless it is silent.
class FakeScheduler : public Scheduler::Service {
 public:
  explicit FakeScheduler(const std::string& name, const std::string& at = "127.0.0.1:0",
                         const GrpcCredentials& credentials = {})
      : name_(name) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(at, credentials.ForServer(), &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeScheduler() override {
    SetSilent(false);
    server_->Shutdown(GrpcDeadline(absl::ZeroDuration()));
  }
  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void SetCompresses() {
    MutexLock lock(&mutex_);
    compresses_ = true;
  }
  // From now on calls are answered so.
  void SetAnswer(grpc::Status answer) {
    MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }
  void SetSilent(bool silent) {
    MutexLock lock(&mutex_);
    silent_ = silent;
    changed_.NotifyAll();
  }

  grpc::Status GetStatus(grpc::ServerContext* context, const GetStatusRequest*,
                         ClusterStatus* reply) override {
    MutexLock lock(&mutex_);
    while (silent_ && !context->IsCancelled()) changed_.WaitFor(&mutex_, kLook);
    if (!answer_.ok()) return answer_;
    reply->set_name(name_);
    if (compresses_) context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    return grpc::Status::OK;
  }

 private:
  static constexpr std::chrono::milliseconds kLook{20};
  const std::string name_;
  int port_ = 0;
  Mutex mutex_;
  CondVar changed_;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  bool compresses_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status answer_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

std::string ClosedPort() { return absl::StrCat("127.0.0.1:", FreePort()); }

// The name of the scheduler that answers, as callers ask: again and again.
std::string WhoAnswers(SchedulerClient* client) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto status = client->GetStatus();
    if (status.ok()) return status->name();
    EXPECT_TRUE(absl::IsUnavailable(status.status())) << status.status();
  }
  return "nobody";
}

TEST(SchedulerClientTest, FirstCallFindsTheOneThatLeads) {
  FakeScheduler leader("leader");
  for (const std::string& list : {absl::StrCat(ClosedPort(), ",", leader.address()),
                                  absl::StrCat(leader.address(), ",", ClosedPort())}) {
    const auto client = SchedulerClient::Create(list, Clock::Real());
    EXPECT_EQ(client->address(), list);
    ASSERT_TRUE(client->WaitReady(absl::Seconds(60), nullptr).ok());
    const auto status = client->GetStatus();
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(status->name(), "leader");
  }
}

TEST(SchedulerClientTest, ACompressedAnswerIsNotInflated) {
  FakeScheduler scheduler(std::string(1 << 20, 'x'));
  const auto client = SchedulerClient::Create(scheduler.address(), Clock::Real());
  EXPECT_TRUE(client->GetStatus().ok());
  scheduler.SetCompresses();
  const auto status = client->GetStatus();
  EXPECT_EQ(status.status().code(), absl::StatusCode::kInternal) << "gRPC would inflate any length";
  EXPECT_THAT(std::string(status.status().message()), HasSubstr("malformed or compressed"));
}

TEST(SchedulerClientTest, ACallThatTheServerCutsOffCountsAsUnanswered) {
  FakeScheduler scheduler("leader");
  const auto client = SchedulerClient::Create(scheduler.address(), Clock::Real());
  ASSERT_EQ(WhoAnswers(client.get()), "leader");
  for (const char* text : {"", "CANCELLED", "Cancelled on the server side", "any other"}) {
    scheduler.SetAnswer({grpc::StatusCode::CANCELLED, text});
    EXPECT_EQ(client->GetStatus().status().code(), absl::StatusCode::kUnavailable) << text;
  }
  scheduler.SetAnswer(ToGrpcStatus(absl::CancelledError("the member has left")));
  EXPECT_EQ(client->GetStatus().status().code(), absl::StatusCode::kCancelled);
  scheduler.SetAnswer(grpc::Status::OK);
  EXPECT_EQ(WhoAnswers(client.get()), "leader");
}

TEST(SchedulerClientTest, ContinuesWithTheSuccessorOfADeadOne) {
  const std::string standby = ClosedPort();
  auto first = std::make_unique<FakeScheduler>("first");
  const auto client =
      SchedulerClient::Create(absl::StrCat(first->address(), ",", standby), Clock::Real());
  ASSERT_EQ(WhoAnswers(client.get()), "first");
  first = nullptr;
  const auto nobody = client->GetStatus();
  EXPECT_TRUE(absl::IsUnavailable(nobody.status())) << nobody.status();
  FakeScheduler second("second", standby);
  EXPECT_EQ(WhoAnswers(client.get()), "second");
}

TEST(SchedulerClientTest, LeavesASilentOneWhenAnotherOneLeads) {
  FakeScheduler first("first"), second("second");
  const auto client =
      SchedulerClient::Create(absl::StrCat(first.address(), ",", second.address()), Clock::Real());
  ASSERT_EQ(WhoAnswers(client.get()), "first");
  first.SetSilent(true);
  const auto cut_short = client->GetStatus();
  EXPECT_TRUE(absl::IsUnavailable(cut_short.status())) << cut_short.status();
  EXPECT_THAT(std::string(cut_short.status().message()), HasSubstr("leads now"))
      << "the call has met its deadline";
  EXPECT_EQ(WhoAnswers(client.get()), "second");
}

TEST(SchedulerClientTest, StaysWithASlowOneWhenNoOtherLeads) {
  FakeScheduler leader("leader");
  const auto client =
      SchedulerClient::Create(absl::StrCat(leader.address(), ",", ClosedPort()), Clock::Real());
  ASSERT_EQ(WhoAnswers(client.get()), "leader");
  leader.SetSilent(true);
  std::thread speaks([&] {
    Clock::Real()->Sleep(absl::Milliseconds(1500));
    leader.SetSilent(false);
  });
  const auto status = client->GetStatus();
  speaks.join();
  EXPECT_TRUE(status.ok()) << status.status();
}

TEST(SchedulerClientTest, ComesThroughAfterAHandshakeThatWasCut) {
  const TestCertificates certificates("scheduler_client");
  auto own = GrpcCredentials::Create(certificates.Of(PeerRole::kScheduler));
  auto worker = GrpcCredentials::Create(certificates.Of(PeerRole::kWorker));
  ASSERT_TRUE(own.ok() && worker.ok());
  FakeScheduler leader("leader", "127.0.0.1:0", *own);
  for (const bool waits : {true, false}) {
    CuttingRelay relay(leader.port(), /*bytes=*/100, /*cuts=*/1);
    const auto client =
        SchedulerClient::Create(absl::StrCat("127.0.0.1:", relay.port()), Clock::Real(), *worker);
    const absl::Time end = Clock::Real()->Now() + absl::Seconds(60);
    absl::Status answered = absl::UnavailableError("");
    if (waits) {
      answered = client->WaitReady(absl::Seconds(60), nullptr);
    } else {
      while (absl::IsUnavailable(answered) && Clock::Real()->Now() < end)
        answered = client->GetStatus().status();
    }
    EXPECT_EQ(relay.has_cut(), 1u);
    EXPECT_TRUE(answered.ok()) << answered << " waits: " << waits;
  }
}

TEST(SchedulerClientTest, ErrorsBetweenTlsAndNoneOrAnotherAuthoritySayWhatToDo) {
  const TestCertificates own("scheduler_client"), others("another_authority");
  const auto serving = GrpcCredentials::Create(own.Of(PeerRole::kScheduler));
  const auto foreign = GrpcCredentials::Create(others.Of(PeerRole::kOperator));
  ASSERT_TRUE(serving.ok() && foreign.ok());
  FakeScheduler encrypted("encrypted", "127.0.0.1:0", *serving), plain("plain");
  const struct {
    std::string address;
    GrpcCredentials credentials;
    const char* fix;
  } cases[] = {{encrypted.address(), GrpcCredentials(), "give --tls_cert"},
               {encrypted.address(), *foreign, "CA in --tls_ca"},
               {plain.address(), *foreign, "no TLS"}};
  for (const auto& c : cases) {
    const auto client = SchedulerClient::Create(c.address, Clock::Real(), c.credentials);
    const absl::Status called = client->GetStatus().status();
    EXPECT_TRUE(absl::IsUnavailable(called)) << called;
    EXPECT_THAT(std::string(called.message()), HasSubstr(c.fix));
    std::string line;
    absl::Status waited;
    // On a busy machine an attempt to connect may take longer than the line waits for.
    for (int i = 0; i < 5 && line.find(c.fix) == std::string::npos; ++i) {
      waited = client->WaitReady(absl::Seconds(4), [&](const std::string& text) { line = text; });
    }
    EXPECT_THAT(line, HasSubstr(c.fix));
    EXPECT_THAT(std::string(waited.message()), HasSubstr(c.fix));
  }
}

// A member that calls GetStatus would be refused and recorded.
TEST(SchedulerClientTest, ASchedulerThatBeginsToServeIsNotAskedWhyItDoesNot) {
  FakeScheduler scheduler("scheduler");
  const auto client = SchedulerClient::Create(scheduler.address(), Clock::Real());
  scheduler.SetSilent(true);  // a call would meet its deadline
  EXPECT_EQ(client->WhyNotReady(), "");
}

TEST(SchedulerClientTest, NamesAllAddressesWhenNobodyLeads) {
  const std::string a = ClosedPort(), b = ClosedPort();
  const auto client = SchedulerClient::Create(absl::StrCat(a, ",", b), Clock::Real());
  const auto status = client->GetStatus();
  EXPECT_TRUE(absl::IsUnavailable(status.status()));
  EXPECT_THAT(std::string(status.status().message()), AllOf(HasSubstr(a), HasSubstr(b)));
  const absl::Status ready = client->WaitReady(absl::Milliseconds(50), nullptr);
  EXPECT_TRUE(absl::IsUnavailable(ready));
  EXPECT_THAT(std::string(ready.message()), AllOf(HasSubstr(a), HasSubstr(b)));
}

}  // namespace
}  // namespace sluice
