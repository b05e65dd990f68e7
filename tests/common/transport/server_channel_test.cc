#include "common/transport/server_channel.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/transport/grpc_convert.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/common/base/free_port.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/transport/cutting_relay.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using State = ServerChannel::State;

// Answers UNIMPLEMENTED. Keeps GetRoute open until it ends.
class FakeService : public Scheduler::Service {
 public:
  grpc::Status GetRoute(grpc::ServerContext*, const GetRouteRequest*, GetRouteReply*) override {
    open.Notify();
    end.WaitForNotification();
    return grpc::Status::OK;
  }
  absl::Notification open, end;
};

struct FakeServer {
  explicit FakeServer(int at = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", at), grpc::InsecureServerCredentials(),
                             &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
  }
  int port = 0;
  FakeService service;
  std::unique_ptr<grpc::Server> server;
};

grpc::ChannelArguments Timings(int connect_ms, int first_pause_ms) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, connect_ms);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, first_pause_ms);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, first_pause_ms);
  return arguments;
}

std::unique_ptr<ServerChannel> ChannelTo(int port, int connect_ms = 10'000, int pause_ms = 1,
                                         const GrpcCredentials& credentials = {}) {
  return std::make_unique<ServerChannel>(absl::StrCat("127.0.0.1:", port), credentials,
                                         PeerRole::kScheduler, std::nullopt,
                                         Timings(connect_ms, pause_ms));
}

bool Await(ServerChannel* channel, State state) {
  for (int i = 0; i < 6000; ++i) {
    if (channel->Look() == state) return true;
    ServerChannel::AwaitChange({channel}, absl::Milliseconds(10));
  }
  return false;
}

grpc::StatusCode Call(const ServerConnection& connection) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(absl::Seconds(60)));
  ClusterStatus reply;
  return Scheduler::NewStub(connection.channel())
      ->GetStatus(&context, GetStatusRequest(), &reply)
      .error_code();
}

TEST(ServerChannelTest, CallsGoOverOneCheckedConnectionThatIsMadeAnewWhenItHasEnded) {
  const int port = FreePort();
  auto server = std::make_unique<FakeServer>(port);
  const auto channel = ChannelTo(port);
  std::shared_ptr<ServerConnection> last;
  for (int life = 0; life < 3; ++life) {
    ASSERT_TRUE(Await(channel.get(), State::kReady)) << life;
    const auto connection = channel->Get();
    ASSERT_TRUE(connection.ok()) << connection.status();
    EXPECT_FALSE((*connection)->is_of_grpc());
    EXPECT_NE(*connection, last);
    EXPECT_EQ(Call(**connection), grpc::StatusCode::UNIMPLEMENTED);
    last = *connection;
    server.reset();
    EXPECT_EQ(Call(*last), grpc::StatusCode::UNAVAILABLE);
    ASSERT_TRUE(Await(channel.get(), State::kFailed)) << life;
    EXPECT_TRUE(absl::IsUnavailable(channel->Get().status()));
    server = std::make_unique<FakeServer>(port);
  }
}

TEST(ServerChannelTest, AServerThatEndsKeepsTheConnectionForItsOldCallsOnly) {
  FakeServer ending(FreePort());
  const auto channel = ChannelTo(ending.port);
  ASSERT_TRUE(Await(channel.get(), State::kReady));
  const auto old = *channel->Get();
  std::thread caller([&] {
    grpc::ClientContext context;
    GetRouteReply reply;
    const auto stub = Scheduler::NewStub(old->channel());
    EXPECT_TRUE(stub->GetRoute(&context, GetRouteRequest(), &reply).ok()) << "the old call goes on";
  });
  ending.service.open.WaitForNotification();
  std::thread end([&] { ending.server->Shutdown(GrpcDeadline(absl::Hours(1))); });
  std::unique_ptr<FakeServer> next;
  for (next = std::make_unique<FakeServer>(ending.port); next->server == nullptr;)
    next = std::make_unique<FakeServer>(ending.port);
  while (Call(*old) != grpc::StatusCode::UNAVAILABLE) std::this_thread::yield();
  EXPECT_FALSE(old->IsOver());
  const absl::Time begin = Clock::Real()->Now();
  channel->Failed(old);
  auto fresh = *channel->Get();
  EXPECT_NE(fresh, old);
  int opened = 0;
  for (int call = 0; call < 20; ++call) {
    EXPECT_EQ(Call(*fresh), grpc::StatusCode::UNIMPLEMENTED);
    channel->Failed(fresh);
    const auto got = *channel->Get();
    opened += got != fresh ? 1 : 0;
    fresh = got;
  }
  EXPECT_LE(opened, absl::ToInt64Seconds(Clock::Real()->Now() - begin))
      << "calls that fail often do not open connections as often";
  ending.service.end.Notify();
  caller.join();
  end.join();
}

// As a port forward or a load balancer does while its target is gone.
TEST(ServerChannelTest, WhereGrpcConnectsAConnectionThatIsClosedAtOnceIsMadeAgainSoon) {
  GrpcCredentials any_user;
  any_user.ServeAnyLocalUser();
  FakeServer server;
  CuttingRelay relay(server.port, /*bytes=*/0, /*cuts=*/2);
  const auto channel = ChannelTo(relay.port(), /*connect_ms=*/1'000'000, /*pause_ms=*/1, any_user);
  ASSERT_TRUE((*channel->Get())->is_of_grpc());
  EXPECT_TRUE(Await(channel.get(), State::kReady));
}

TEST(ServerChannelTest, AfterAFailedAttemptThereIsAPause) {
  const int port = FreePort();
  const auto patient = ChannelTo(port, 10'000, /*pause_ms=*/1'000'000);
  EXPECT_EQ(patient->Look(), State::kFailed);
  EXPECT_THAT(std::string(patient->Get().status().message()), HasSubstr("refused"));
  FakeServer back(port);
  EXPECT_EQ(patient->Look(), State::kFailed) << "the pause is not over";
  EXPECT_TRUE(Await(ChannelTo(port).get(), State::kReady));
}

TEST(ServerChannelTest, AServerThatDoesNotAnswerFailsTheAttempt) {
  TcpRelay silent(/*target_port=*/0);
  EXPECT_EQ(ChannelTo(silent.port(), /*connect_ms=*/1'000'000)->Look(), State::kConnecting);
  const auto channel = ChannelTo(silent.port(), /*connect_ms=*/500, /*pause_ms=*/1'000'000);
  const auto connection = channel->Get();
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_TRUE(Await(channel.get(), State::kFailed));
  EXPECT_THAT(std::string(channel->Get().status().message()), HasSubstr("does not answer"));
  EXPECT_EQ(Call(**connection), grpc::StatusCode::UNAVAILABLE) << "its calls end";
}

TEST(ServerChannelTest, AServerThatClosesAtOnceFailsTheAttempt) {
  FakeServer server;
  CuttingRelay relay(server.port, /*bytes=*/0, /*cuts=*/2);
  const auto patient = ChannelTo(relay.port(), 10'000, /*pause_ms=*/1'000'000);
  EXPECT_TRUE(Await(patient.get(), State::kFailed));
  EXPECT_THAT(std::string(patient->Get().status().message()), HasSubstr("Socket closed"));
  EXPECT_TRUE(Await(ChannelTo(relay.port()).get(), State::kReady))
      << "the attempt after the next comes through";
}

TEST(ServerChannelTest, WithTlsManyUsersOfOneFailedChannelReplaceItOnce) {
  const TestCertificates certificates("server_channel");
  const auto worker = GrpcCredentials::Create(certificates.Of(PeerRole::kWorker));
  ASSERT_TRUE(worker.ok());
  const auto channel = ChannelTo(1, 10'000, 1, *worker);
  const auto first = channel->Get();
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE((*first)->is_of_grpc());
  EXPECT_EQ(*channel->Get(), *first);
  channel->Failed(*first);
  const auto second = channel->Get();
  EXPECT_NE(*second, *first);
  channel->Failed(*first);
  EXPECT_EQ(*channel->Get(), *second);
}

}  // namespace
}  // namespace sluice
