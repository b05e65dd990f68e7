#include "common/security/server_guard.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"
#include "common/security/grpc_credentials.h"
#include "common/transport/grpc_transport.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/common/base/free_port.h"
#include "tests/common/security/no_descriptors_left.h"
#include "tests/common/security/server_process.h"
#include "tests/common/transport/recording_streams.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string AddressOf(uint16_t port) { return absl::StrCat("127.0.0.1:", port); }

ServerProcess::Options Foreign(uint16_t port = 0) {
  ServerProcess::Options options;
  options.user = kNobody;
  options.port = port;
  return options;
}

constexpr absl::Duration kWait = absl::Seconds(60);

class ServerGuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can run a server of another user";
  }
};

TEST_F(ServerGuardTest, ConnectionsToAnotherUsersServerFail) {
  const ServerProcess server(Foreign());
  const ServerGuard guard(AddressOf(server.port()), GrpcCredentials());
  ASSERT_TRUE(guard.guards());
  const absl::Status refused = guard.Connect(kWait).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr(absl::StrCat("user ", kNobody)));
  const absl::Status why = guard.Explain(absl::UnavailableError("connect"));
  EXPECT_TRUE(absl::IsUnavailable(why));
  EXPECT_THAT(why.message(), HasSubstr(absl::StrCat("user ", kNobody)));
}

TEST_F(ServerGuardTest, OtherAddressesAndSettingsAreLeftAlone) {
  const ServerProcess server(Foreign());
  GrpcCredentials any_user;
  any_user.ServeAnyLocalUser();
  const ServerGuard open(AddressOf(server.port()), any_user);
  EXPECT_FALSE(open.guards());
  EXPECT_FALSE(ServerGuard(absl::StrCat("10.0.0.1:", server.port()), GrpcCredentials()).guards());
  EXPECT_EQ(open.Explain(absl::UnavailableError("connect")).message(), "connect");
}

// A resolver would have to open its files.
TEST(ServerGuardNamesTest, NoResolverIsAskedForLocalhost) {
  const ServerGuard guard("localhost:1", GrpcCredentials());
  ASSERT_TRUE(guard.guards());
  const NoDescriptorsLeft none;
  EXPECT_THAT(guard.Connect(kWait).status().message(),
              HasSubstr("cannot connect to 127.0.0.1:1: Too many open files"));
}

TEST_F(ServerGuardTest, ServersOfTheOwnUserAreReachedAndClosedPortsRefused) {
  ServerProcess::Options options;
  options.port = static_cast<uint16_t>(FreePort());
  ServerProcess server(options);
  const ServerGuard guard(absl::StrCat("localhost:", server.port()), GrpcCredentials());
  const auto connected = guard.Connect(kWait);
  ASSERT_TRUE(connected.ok()) << connected.status();
  EXPECT_EQ(send(connected->get(), "x", 1, MSG_NOSIGNAL), 1);
  server.AwaitAccepted(1);
  EXPECT_EQ(server.bytes(), 1);
  server.Stop();
  const absl::Status refused = guard.Connect(kWait).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("refused"));
}

TEST_F(ServerGuardTest, AStreamSendsNothingToAnotherUser) {
  const ServerProcess server(Foreign());
  GrpcTransport transport;
  {
    RecordingClient client(&transport, AddressOf(server.port()));
    client.Send("a secret");
    ASSERT_TRUE(client.AwaitClosed());
    const absl::Status closed = client.status();
    EXPECT_TRUE(absl::IsUnavailable(closed)) << closed;
    EXPECT_THAT(closed.message(), HasSubstr(absl::StrCat("user ", kNobody)));
  }
  const auto answer =
      transport.Call(AddressOf(server.port()), "/a/b", "a secret", absl::Seconds(60));
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(answer.status().message(), HasSubstr(absl::StrCat("user ", kNobody)));
  server.AwaitAccepted(1);
  EXPECT_EQ(server.bytes(), 0);
}

TEST_F(ServerGuardTest, EachNewConnectionOfASchedulersClientIsChecked) {
  const auto port = static_cast<uint16_t>(FreePort());
  const auto serve = [port] {
    static Scheduler::Service service;  // answers UNIMPLEMENTED
    grpc::ServerBuilder builder;
    builder.AddListeningPort(AddressOf(port), grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    return builder.BuildAndStart();
  };
  auto scheduler = serve();
  const auto client = SchedulerClient::Create(AddressOf(port), Clock::Real());
  for (int life = 0; life < 2; ++life) {
    absl::Status answered;
    for (int i = 0; i < 100; ++i) {
      answered = client->GetStatus().status();
      if (absl::IsUnimplemented(answered)) break;
    }
    EXPECT_TRUE(absl::IsUnimplemented(answered)) << answered;
    scheduler->Shutdown();
    scheduler.reset();
    {
      const ServerProcess server(Foreign(port));
      const absl::Status refused = client->GetStatus().status();
      EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
      EXPECT_THAT(refused.message(), HasSubstr(absl::StrCat("user ", kNobody)));
      EXPECT_THAT(client->WhyRefused(), HasSubstr(absl::StrCat("user ", kNobody)));
      const absl::Status waited = client->WaitReady(absl::Milliseconds(200), nullptr);
      EXPECT_THAT(waited.message(), HasSubstr(absl::StrCat("user ", kNobody)));
      server.AwaitAccepted(1);
      EXPECT_EQ(server.bytes(), 0);
    }
    scheduler = serve();
  }
}

}  // namespace
}  // namespace sluice
