#include "common/security/local_user_gate.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>
#include <memory>
#include <utility>

#include "common/security/connection_listener.h"
#include "tests/common/security/other_user.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

constexpr uid_t kSomebody = 54321;

LocalUserGate::Options At(const std::string& address, AuditLog* audit = nullptr,
                          uid_t user = geteuid()) {
  LocalUserGate::Options options;
  options.address = address;
  options.audit = audit;
  options.user = user;
  return options;
}

// A server behind a gate, which says something to every connection.
class GuardedServer {
 public:
  explicit GuardedServer(LocalUserGate::Options users) {
    ConnectionListener::Options options;
    options.users = std::move(users);
    auto listener = ConnectionListener::Listen(std::move(options));
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Start([](FileDescriptor connection, const TcpEnd&) {
      (void)!send(connection.get(), "x", 1, MSG_NOSIGNAL);
    });
  }
  int port() const { return listener_->port(); }

 private:
  std::unique_ptr<ConnectionListener> listener_;
};

// Whether the server says something to this client before it closes the connection.
bool IsServed(int port) {
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = LoopbackAddress(port);
  char byte;
  pollfd waiting = {client, POLLIN, 0};
  const bool served =
      connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      poll(&waiting, 1, 60'000) == 1 && recv(client, &byte, 1, 0) == 1;
  close(client);
  return served;
}

class LocalUserGateTest : public testing::Test {
 protected:
  // By a process of `user`.
  bool IsServedAs(uid_t user, int port) {
    int result[2];
    EXPECT_EQ(pipe(result), 0);
    ProcessOfUser process(user, [&] {
      const char served = IsServed(port) ? 'y' : 'n';
      (void)!write(result[1], &served, 1);
    });
    char served = 0;
    EXPECT_EQ(read(result[0], &served, 1), 1);
    process.Join();
    close(result[0]);
    close(result[1]);
    return served == 'y';
  }
  uint64_t Refusals() { return audit_.Refusals(kConnectMethod, "user"); }

  RecordedAudit audit_{"pserver"};
};

TEST_F(LocalUserGateTest, AnotherUserIsClosedOutWithoutAnAnswerAndRecorded) {
  if (geteuid() != 0) GTEST_SKIP() << "the test does not run as root";
  {
    const GuardedServer server(At("127.0.0.1:0", audit_.log()));
    EXPECT_TRUE(IsServed(server.port()));
    EXPECT_FALSE(IsServedAs(kNobody, server.port()));
  }
  EXPECT_EQ(Refusals(), 1u);
  const std::string line = audit_.Text();
  EXPECT_NE(line.find("user 65534"), std::string::npos) << line;
  EXPECT_NE(line.find("\"address\": \"127.0.0.1:"), std::string::npos) << line;
  EXPECT_NE(line.find("--any_local_user"), std::string::npos) << line;
}

TEST_F(LocalUserGateTest, TheUserOfTheServerAndRootAreServed) {
  if (geteuid() != 0) {
    const GuardedServer served(At("localhost:0"));
    const GuardedServer refuses(At("localhost:0", nullptr, geteuid() + 1));
    EXPECT_TRUE(IsServed(served.port()));
    EXPECT_FALSE(IsServed(refuses.port()));
    return;
  }
  const GuardedServer server(At("127.0.0.1:0", nullptr, kSomebody));
  EXPECT_TRUE(IsServed(server.port()));
  EXPECT_TRUE(IsServedAs(kSomebody, server.port()));
  EXPECT_FALSE(IsServedAs(kNobody, server.port()));
}

TEST_F(LocalUserGateTest, EveryUserIsServedWhereThatIsAllowed) {
  LocalUserGate::Options any = At("127.0.0.1:0"), tls = any;
  any.any_local_user = true;
  tls.tls = true;
  EXPECT_FALSE(LocalUserGate(any).closed_to_others());
  EXPECT_FALSE(LocalUserGate(tls).closed_to_others());
  // Only --insecure allows this one.
  EXPECT_FALSE(LocalUserGate(At("0.0.0.0:0")).closed_to_others());
  EXPECT_TRUE(LocalUserGate(At("[::1]:0")).closed_to_others());
  const GuardedServer server(any);
  EXPECT_TRUE(geteuid() == 0 ? IsServedAs(kNobody, server.port()) : IsServed(server.port()));
}

// Connects and breaks off, which the server may or may not notice before it accepts.
void ConnectAndLeave(int port, const std::string& bytes) {
  const int client = ConnectTo(port);
  EXPECT_EQ(send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  const linger now = {1, 0};
  setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(client);
}

TEST_F(LocalUserGateTest, ACallerThatSendsAndLeavesIsRecorded) {
  const GuardedServer server(At("127.0.0.1:0", audit_.log()));
  for (int i = 0; i < 10'000 && Refusals() == 0; ++i) ConnectAndLeave(server.port(), "PRI *");
  EXPECT_GT(Refusals(), 0u);
  EXPECT_TRUE(IsServed(server.port()));
}

TEST_F(LocalUserGateTest, AProbeOfThePortIsNotRecorded) {
  {
    const GuardedServer server(At("127.0.0.1:0", audit_.log()));
    for (int i = 0; i < 500; ++i) ConnectAndLeave(server.port(), "");
    EXPECT_TRUE(IsServed(server.port()));
  }
  // A client that the kernel stops between the end of its own socket and the reset of the server's
  // cannot be told from one whose user is hidden.
  EXPECT_LE(Refusals(), 5u);
}

}  // namespace
}  // namespace sluice
