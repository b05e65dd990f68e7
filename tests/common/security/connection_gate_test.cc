// A gRPC server with few places for connections.
#include "common/security/connection_gate.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/transport/grpc_transport.h"
#include "tests/common/security/no_descriptors_left.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/transport/grpc_servers.h"
#include "tests/common/transport/recording_streams.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

// With settings, after which a connection may be silent for long.
constexpr char kClientPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
constexpr size_t kPerHost = 4, kInAll = 6;

// A connection from a loopback address, which stands for a host, that calls nothing.
class Silent {
 public:
  Silent(int port, const char* host) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in from = LoopbackAddress(0);
    EXPECT_EQ(inet_pton(AF_INET, host, &from.sin_addr), 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
    const sockaddr_in to = LoopbackAddress(port);
    // The server may have closed it by the time that these return.
    (void)connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    (void)!send(fd_, kClientPreface, sizeof(kClientPreface), MSG_NOSIGNAL);
  }
  ~Silent() { close(fd_); }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;

  // Waits for the end of the connection.
  bool HasEnded(int wait_ms = 60'000) const {
    char bytes[512];
    pollfd waiting = {fd_, POLLIN, 0};
    while (poll(&waiting, 1, wait_ms) == 1) {
      if (recv(fd_, bytes, sizeof(bytes), 0) <= 0) return true;
    }
    return false;
  }
  bool IsOpen() const { return !HasEnded(0); }

 private:
  const int fd_;
};

class ConnectionGateTest : public testing::Test {
 protected:
  void Start(const GrpcCredentials& credentials = GrpcCredentials()) {
    GrpcStreamServer::Options options;
    options.credentials = credentials;
    options.audit = audit_.log();
    options.connections.max_per_host = kPerHost;
    options.connections.max_open = kInAll;
    options.shutdown_timeout = absl::Milliseconds(50);
    server_ = StartServer(scripted_.factory(), options);
  }
  // Opens a connection, and waits until the server has taken notice.
  void OpenSilent(const char* host) {
    silent_.push_back(std::make_unique<Silent>(server_->port(), host));
  }
  bool AwaitOpen(size_t connections) {
    for (int i = 0; i < 6000 && server_->open_connections() != connections; ++i)
      Clock::Real()->Sleep(absl::Milliseconds(10));
    EXPECT_EQ(server_->open_connections(), connections);
    return server_->open_connections() == connections;
  }
  uint64_t Refusals() { return audit_.Refusals(kConnectMethod, "room"); }
  bool AwaitRefusals(uint64_t number) {
    for (int i = 0; i < 6000 && Refusals() < number; ++i)
      Clock::Real()->Sleep(absl::Milliseconds(10));
    return Refusals() >= number;
  }
  // A client that has called, on a connection of its own.
  struct Member {
    explicit Member(const GrpcStreamServer& server, const GrpcCredentials& credentials = {}) {
      GrpcTransport::Options options;
      options.credentials = credentials;
      transport = std::make_unique<GrpcTransport>(options);
      client = std::make_unique<RecordingClient>(transport.get(), AddressOf(server));
    }
    ~Member() { client->Destroy(); }
    bool IsServed() {
      client->Send("x");
      return client->AwaitMessageOrEnd(++sent);
    }
    std::unique_ptr<GrpcTransport> transport;
    std::unique_ptr<RecordingClient> client;
    size_t sent = 0;
  };

  RecordedAudit audit_{"pserver"};
  ScriptedServer scripted_{Echo};
  std::unique_ptr<GrpcStreamServer> server_;
  std::vector<std::unique_ptr<Silent>> silent_;
};

TEST_F(ConnectionGateTest, ClosedConnectionsGiveTheirPlaceBack) {
  Start();
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < kPerHost; ++i) OpenSilent("127.0.0.1");
    EXPECT_TRUE(AwaitOpen(kPerHost));
    for (const auto& connection : silent_) EXPECT_TRUE(connection->IsOpen());
    silent_.clear();
    EXPECT_TRUE(AwaitOpen(0));
  }
  EXPECT_EQ(Refusals(), 0u);
}

TEST_F(ConnectionGateTest, AFloodOfAHostEndsItsOwnSilentConnectionsAndNoMember) {
  Start();
  Member member(*server_);
  ASSERT_TRUE(member.IsServed());
  // Fewer are ended than may wait for gRPC to close them.
  for (int i = 0; i < 13; ++i) {
    OpenSilent("127.0.0.1");
    if (i >= 3) {
      EXPECT_TRUE(silent_[i - 3]->HasEnded()) << i;
    }
  }
  EXPECT_TRUE(AwaitOpen(kPerHost));
  EXPECT_TRUE(member.IsServed());
  EXPECT_TRUE(AwaitRefusals(10));
  // Another host has its own places, and then those of the flood.
  for (size_t i = 0; i < kPerHost; ++i) OpenSilent("127.0.0.2");
  EXPECT_TRUE(AwaitOpen(kInAll));
  Member late(*server_);
  EXPECT_TRUE(late.IsServed());
  EXPECT_TRUE(member.IsServed());
  EXPECT_TRUE(AwaitOpen(kInAll));
}

TEST_F(ConnectionGateTest, WhenAllHaveCalledTheNewcomerIsRefusedAndRecorded) {
  Start();
  std::vector<std::unique_ptr<Member>> members;
  for (size_t i = 0; i < kPerHost; ++i) {
    members.push_back(std::make_unique<Member>(*server_));
    ASSERT_TRUE(members.back()->IsServed());
  }
  OpenSilent("127.0.0.1");
  EXPECT_TRUE(silent_.back()->HasEnded());
  EXPECT_TRUE(AwaitRefusals(1));
  EXPECT_TRUE(audit_.AwaitText("max_streams")) << audit_.Text();
  for (const auto& member : members) EXPECT_TRUE(member->IsServed());
  members.pop_back();
  EXPECT_TRUE(AwaitOpen(kPerHost - 1));
  OpenSilent("127.0.0.1");
  EXPECT_TRUE(AwaitOpen(kPerHost));
  EXPECT_TRUE(silent_.back()->IsOpen());
}

TEST_F(ConnectionGateTest, WithTlsHandshakesThatStopMakeRoomForMembers) {
  TestCertificates certificates("cluster");
  const auto server = GrpcCredentials::Create(certificates.Of(PeerRole::kPserver, "0"));
  const auto worker = GrpcCredentials::Create(certificates.Of(PeerRole::kWorker, "0"));
  ASSERT_TRUE(server.ok() && worker.ok());
  Start(*server);
  for (size_t i = 0; i < 2 * kPerHost; ++i) OpenSilent("127.0.0.1");
  Member member(*server_, *worker);
  EXPECT_TRUE(member.IsServed());
  for (size_t i = 0; i < 2 * kPerHost; ++i) OpenSilent("127.0.0.1");
  EXPECT_TRUE(member.IsServed());
}

TEST_F(ConnectionGateTest, WithTlsACertificateThatTakesAllPlacesMakesRoomForOthers) {
  TestCertificates certificates("cluster");
  const auto server = GrpcCredentials::Create(certificates.Of(PeerRole::kPserver, "0"));
  const auto greedy = GrpcCredentials::Create(certificates.Of(PeerRole::kWorker, "7"));
  const auto worker = GrpcCredentials::Create(certificates.Of(PeerRole::kWorker, "0"));
  ASSERT_TRUE(server.ok() && greedy.ok() && worker.ok());
  Start(*server);
  Member first(*server_, *worker);
  ASSERT_TRUE(first.IsServed());
  std::vector<std::unique_ptr<Member>> taken;
  for (size_t i = 1; i < kPerHost; ++i) {
    taken.push_back(std::make_unique<Member>(*server_, *greedy));
    ASSERT_TRUE(taken.back()->IsServed());
  }
  Member late(*server_, *worker);
  EXPECT_TRUE(late.IsServed());
  EXPECT_TRUE(first.IsServed());
  EXPECT_TRUE(taken.front()->IsServed());
  EXPECT_FALSE(taken.back()->IsServed());
  EXPECT_TRUE(AwaitRefusals(1));
  EXPECT_TRUE(audit_.AwaitText("has more than any other")) << audit_.Text();
  EXPECT_TRUE(audit_.AwaitText("\"role\": \"worker\", \"name\": \"7\"")) << audit_.Text();
}

TEST_F(ConnectionGateTest, AConnectionThatHasEndedKeepsItsPlaceUntilItsOwnerHasClosedIt) {
  ConnectionGate gate({1, 1}, audit_.log());
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  FileDescriptor owned(pair[0]);
  ASSERT_EQ(gate.Admit(owned.get(), {std::string(4, '\1'), 1}), Admission::kAdmitted);
  EXPECT_EQ(gate.TakeEnds(), absl::InfiniteDuration());
  shutdown(owned.get(), SHUT_RDWR);
  pollfd ended = {gate.ends(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 60'000), 1);
  EXPECT_LT(gate.TakeEnds(), absl::Seconds(1)) << "it looks again soon";
  EXPECT_EQ(gate.open(), 1u);
  // Another file at the same number is not mistaken for it.
  ASSERT_EQ(dup2(pair[1], owned.get()), owned.get());
  EXPECT_EQ(gate.TakeEnds(), absl::InfiniteDuration());
  EXPECT_EQ(gate.open(), 0u);
  close(pair[1]);
}

TEST(ConnectionGateDescriptorTest, WithoutADescriptorNothingIsAdmittedAndNoPlaceTaken) {
  ConnectionGate gate({1, 1}, /*audit=*/nullptr);
  const FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const NoDescriptorsLeft none;
    EXPECT_EQ(gate.Admit(connection.get(), {std::string(4, '\1'), 1}), Admission::kNoMeans);
  }
  EXPECT_EQ(gate.open(), 0u);
  EXPECT_EQ(gate.Admit(connection.get(), {std::string(4, '\1'), 1}), Admission::kAdmitted);
}

// gRPC closes the descriptors of a server after it has ended.
TEST_F(ConnectionGateTest, ConnectionsMayOutliveTheGate) {
  for (int i = 0; i < 5; ++i) {
    Start();
    OpenSilent("127.0.0.1");
    EXPECT_TRUE(AwaitOpen(1));
    server_.reset();
    EXPECT_TRUE(silent_.back()->HasEnded());
  }
}

}  // namespace
}  // namespace sluice
