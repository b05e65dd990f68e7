#include "common/security/connection_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "tests/common/base/free_port.h"
#include "tests/common/security/no_descriptors_left.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr int kIdle = 20;

ConnectionListener::Options At(const std::string& address) {
  ConnectionListener::Options options;
  options.users.address = address;
  return options;
}

// True when the server sends something or ends the connection within 60 s.
bool AwaitEvent(int fd) {
  pollfd event = {fd, POLLIN, 0};
  return poll(&event, 1, 60'000) == 1;
}

bool HasEnded(int fd) {
  char byte;
  while (AwaitEvent(fd)) {
    if (recv(fd, &byte, 1, 0) <= 0) return true;
  }
  return false;
}

FileDescriptor Client() { return FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

bool Connect(const FileDescriptor& client, int port) {
  const sockaddr_in address = LoopbackAddress(port);
  return connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// Greets and keeps the connections that it is given.
class Taken {
 public:
  ConnectionListener::Take take() {
    return [this](FileDescriptor connection, const TcpEnd& peer) {
      EXPECT_EQ(send(connection.get(), "x", 1, MSG_NOSIGNAL), 1);
      MutexLock lock(&mutex_);
      connections_.push_back(std::move(connection));
      peers_.push_back(peer);
      changed_.NotifyAll();
    };
  }
  // The peers of the connections, when there are so many.
  std::vector<TcpEnd> Await(size_t count) {
    MutexLock lock(&mutex_);
    while (peers_.size() < count && changed_.WaitFor(&mutex_, std::chrono::seconds(60))) {
    }
    EXPECT_EQ(peers_.size(), count);
    return peers_;
  }
  void CloseAll() {
    MutexLock lock(&mutex_);
    for (const FileDescriptor& connection : connections_) shutdown(connection.get(), SHUT_RDWR);
    connections_.clear();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<FileDescriptor> connections_ ABSL_GUARDED_BY(mutex_);
  std::vector<TcpEnd> peers_ ABSL_GUARDED_BY(mutex_);
};

TEST(ConnectionListenerTest, ConnectionsAreHandedOverWithTheirPeers) {
  Taken taken;
  const auto listener = ConnectionListener::Listen(At("localhost:0"));
  ASSERT_TRUE(listener.ok()) << listener.status();
  const FileDescriptor early(ConnectTo((*listener)->port()));  // waits for the start
  (*listener)->Start(taken.take());
  const FileDescriptor late(ConnectTo((*listener)->port()));
  const std::vector<TcpEnd> peers = taken.Await(2);
  size_t i = 0;
  for (const int client : {early.get(), late.get()}) {
    sockaddr_in own = {};
    socklen_t size = sizeof(own);
    ASSERT_EQ(getsockname(client, reinterpret_cast<sockaddr*>(&own), &size), 0);
    EXPECT_EQ(peers[i++].ToText(), absl::StrCat("127.0.0.1:", ntohs(own.sin_port)));
  }
}

TEST(ConnectionListenerTest, TheWildcardTakesIpv4) {
  for (const char* any : {"0.0.0.0:0", "[::]:0"}) {
    Taken taken;
    const auto listener = ConnectionListener::Listen(At(any));
    ASSERT_TRUE(listener.ok()) << listener.status();
    (*listener)->Start(taken.take());
    const FileDescriptor client(ConnectTo((*listener)->port()));
    EXPECT_THAT(taken.Await(1).at(0).ToText(), HasSubstr("127.0.0.1:"));
  }
}

TEST(ConnectionListenerTest, AnAddressThatCannotBeBoundIsUnavailableAndNamed) {
  const auto first = ConnectionListener::Listen(At("127.0.0.1:0"));
  ASSERT_TRUE(first.ok());
  const std::string used = absl::StrCat("127.0.0.1:", (*first)->port());
  for (const std::string& address :
       {used, absl::StrCat("0.0.0.0:", (*first)->port()), std::string("192.0.2.1:0"),
        std::string("no.such.host.invalid:0"), std::string("no port")}) {
    const absl::Status status = ConnectionListener::Listen(At(address)).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(address));
  }
}

TEST(ConnectionListenerTest, AfterTheStopNobodyConnectsAndConnectionsGoOn) {
  Taken taken;
  const int port = FreePort();
  const auto listener = ConnectionListener::Listen(At(absl::StrCat("127.0.0.1:", port)));
  ASSERT_TRUE(listener.ok());
  (*listener)->Start(taken.take());
  const FileDescriptor client(ConnectTo(port));
  taken.Await(1);
  (*listener)->Stop();
  EXPECT_TRUE(AwaitEvent(client.get()));
  EXPECT_FALSE(Connect(Client(), port));
  EXPECT_EQ(send(client.get(), "x", 1, MSG_NOSIGNAL), 1);
  (*listener)->Stop();
  EXPECT_TRUE(ConnectionListener::Listen(At(absl::StrCat("127.0.0.1:", port))).ok());
}

TEST(ConnectionListenerTest, BeyondTheBoundsTheOldestSilentConnectionMakesRoom) {
  Taken taken;
  ConnectionListener::Options options = At("127.0.0.1:0");
  options.bounds.emplace();
  options.bounds->max_per_host = options.bounds->max_open = 2;
  const auto listener = ConnectionListener::Listen(std::move(options));
  ASSERT_TRUE(listener.ok());
  (*listener)->Start(taken.take());
  std::vector<FileDescriptor> clients;
  for (size_t i = 1; i <= 3; ++i) {
    clients.emplace_back(ConnectTo((*listener)->port()));
    taken.Await(i);
  }
  EXPECT_TRUE(HasEnded(clients[0].get()));
  EXPECT_EQ((*listener)->open(), 2u);
  taken.CloseAll();
  for (int i = 0; i < 6000 && (*listener)->open() > 0; ++i) poll(nullptr, 0, 10);
  EXPECT_EQ((*listener)->open(), 0u);
}

// The connection gets the last descriptor, and the gate needs one too.
TEST(ConnectionListenerTest, AConnectionThatAGateHasNoDescriptorForIsCountedRecordedAndTold) {
  RecordedAudit audit("pserver");
  Taken taken;
  Mutex mutex;
  std::vector<std::string> told;
  uint64_t dropped = 0;
  {
    ConnectionListener::Options options = At("127.0.0.1:0");
    options.users.any_local_user = true;
    options.users.audit = audit.log();
    options.bounds.emplace();
    options.log = [&](const std::string& line) {
      MutexLock lock(&mutex);
      told.push_back(line);
    };
    const auto listener = ConnectionListener::Listen(std::move(options));
    ASSERT_TRUE(listener.ok());
    (*listener)->Start(taken.take());
    const FileDescriptor clients[] = {Client(), Client()};
    NoDescriptorsLeft none;
    none.GiveBackOne();
    for (const FileDescriptor& client : clients) {
      ASSERT_TRUE(Connect(client, (*listener)->port()));
      EXPECT_TRUE(HasEnded(client.get()));
    }
    (*listener)->Stop();
    dropped = (*listener)->dropped();
  }
  EXPECT_EQ(dropped, 2u);
  EXPECT_EQ(audit.Refusals(kConnectMethod, "room"), 2u);
  EXPECT_THAT(audit.Text(), HasSubstr("LimitNOFILE"));
  ASSERT_EQ(told.size(), 1u) << "the second line comes too soon";
  EXPECT_THAT(told[0], HasSubstr("LimitNOFILE"));
}

// A thread that takes and keeps each descriptor that becomes free, up to `most`.
class Taker {
 public:
  explicit Taker(size_t most)
      : thread_([this, most] {
          while (!ends_) {
            const int fd = taken_.size() < most ? dup(STDERR_FILENO) : -1;
            if (fd >= 0) taken_.push_back(fd);
            runs_ = true;
          }
        }) {
    while (!runs_) std::this_thread::yield();
  }
  ~Taker() {
    ends_ = true;
    thread_.join();
    for (const int fd : taken_) close(fd);
  }

 private:
  std::atomic<bool> runs_{false}, ends_{false};
  std::vector<int> taken_;  // of the thread
  std::thread thread_;
};

class ListenerWithoutDescriptors : public testing::Test {
 protected:
  ListenerWithoutDescriptors() {
    auto listener = ConnectionListener::Listen(At("127.0.0.1:0"));
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Start(taken_.take());
    for (int i = 0; i < kIdle; ++i) clients_.push_back(Client());
  }
  void ConnectAll() {
    for (const FileDescriptor& client : clients_) ASSERT_TRUE(Connect(client, listener_->port()));
  }
  void ExpectServed() {
    const FileDescriptor client(ConnectTo(listener_->port()));
    EXPECT_TRUE(AwaitEvent(client.get()));
  }

  Taken taken_;
  std::unique_ptr<ConnectionListener> listener_;
  std::vector<FileDescriptor> clients_;
};

TEST_F(ListenerWithoutDescriptors, ConnectionsAreClosedAndLaterOnesServed) {
  {
    const NoDescriptorsLeft none;
    ConnectAll();
    for (const FileDescriptor& client : clients_) EXPECT_TRUE(HasEnded(client.get()));
  }
  EXPECT_EQ(listener_->dropped(), uint64_t{kIdle});
  ExpectServed();
}

TEST_F(ListenerWithoutDescriptors, OtherThreadsMayTakeSomeOfTheKeptOnes) {
  {
    const NoDescriptorsLeft none;
    const Taker taker(3);
    ConnectAll();
    for (const FileDescriptor& client : clients_) EXPECT_TRUE(HasEnded(client.get()));
  }
  ExpectServed();
}

TEST_F(ListenerWithoutDescriptors, TheThreadGoesOnWhenOthersTakeAll) {
  {
    const NoDescriptorsLeft none;
    const Taker taker(100);
    ConnectAll();
  }
  // Those that still wait are taken now.
  for (const FileDescriptor& client : clients_)
    EXPECT_TRUE(AwaitEvent(client.get())) << "the connection still waits";
}

}  // namespace
}  // namespace sluice
