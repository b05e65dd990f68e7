#include "common/security/accept_reserve.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "common/admin/bounded_http_server.h"
#include "common/transport/grpc_transport.h"
#include "tests/common/security/no_descriptors_left.h"
#include "tests/common/transport/grpc_servers.h"
#include "tests/common/transport/recording_streams.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

constexpr int kIdle = 20;

bool Connect(int fd, int port) {
  const sockaddr_in address = LoopbackAddress(port);
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// True when the server sends something or ends the connection within 10 s.
bool AwaitEvent(int fd) {
  pollfd event = {fd, POLLIN, 0};
  return poll(&event, 1, 10000) == 1;
}

// Idle clients connect to `port` while there is no descriptor for their connections, and leave.
void MeetTheLimit(int port) {
  std::vector<int> idle;
  for (int i = 0; i < kIdle; ++i) idle.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const uint64_t before = ConnectionsDropped();
  {
    const NoDescriptorsLeft none;
    for (const int fd : idle) ASSERT_TRUE(Connect(fd, port));
    for (const int fd : idle) EXPECT_TRUE(AwaitEvent(fd)) << "the connection still waits";
  }
  EXPECT_GE(ConnectionsDropped() - before, 1u);
  for (const int fd : idle) close(fd);
}

TEST(AcceptReserveTest, AGrpcPortServesAgainOnceThereAreDescriptors) {
  ScriptedServer handlers([](Stream* stream, const std::string& message) {
    stream->Send({Slice::FromString(message)});
  });
  const auto server = StartServer(handlers.factory());
  MeetTheLimit(server->port());
  GrpcTransport transport;
  RecordingClient client(&transport, AddressOf(*server));
  client.Send("hello");
  EXPECT_TRUE(client.AwaitMessages(1));
}

TEST(AcceptReserveTest, AnAdminPortServesAgainOnceThereAreDescriptors) {
  BoundedHttpServer::Limits limits;
  limits.request_time = absl::Seconds(2);  // also of a connection for which there was room
  BoundedHttpServer server(limits);
  server.Get("/page", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("content", "text/plain");
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  ASSERT_GT(port, 0);
  std::thread thread([&] { server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::yield();
  MeetTheLimit(port);
  const auto answer = httplib::Client("127.0.0.1", port).Get("/page");
  EXPECT_TRUE(answer) << httplib::to_string(answer.error());
  server.stop();
  thread.join();
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
  ListenerWithoutDescriptors()
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    KeepAcceptReserve();
    sockaddr_in address = LoopbackAddress(0);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, kIdle), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    for (int i = 0; i < kIdle; ++i)
      clients_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  ~ListenerWithoutDescriptors() override {
    for (const int fd : clients_) close(fd);
    close(listener_);
  }
  void ConnectAll() {
    for (const int fd : clients_) ASSERT_TRUE(Connect(fd, port_));
  }

  const int listener_;
  int port_ = 0;
  std::vector<int> clients_;
};

TEST_F(ListenerWithoutDescriptors, OtherThreadsMayTakeSomeOfTheKeptOnes) {
  const NoDescriptorsLeft none;
  const Taker taker(3);
  ConnectAll();
  EXPECT_EQ(accept(listener_, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  for (const int fd : clients_) EXPECT_TRUE(AwaitEvent(fd)) << "the connection still waits";
}

TEST_F(ListenerWithoutDescriptors, TheThreadGoesOnWhenOthersTakeAll) {
  {
    const NoDescriptorsLeft none;
    const Taker taker(100);
    ConnectAll();
    EXPECT_EQ(accept(listener_, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  // Those that still wait are taken now.
  std::vector<int> accepted;
  for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0;) accepted.push_back(fd);
  for (const int fd : accepted) close(fd);
  for (const int fd : clients_) EXPECT_TRUE(AwaitEvent(fd)) << "the connection still waits";
}

TEST(AcceptReserveTest, AListenerThatHasNoConnectionSaysSo) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = LoopbackAddress(0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  KeepAcceptReserve();
  {
    const NoDescriptorsLeft none;
    EXPECT_EQ(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(accept(STDERR_FILENO, nullptr, nullptr), -1) << "no listener: an error, at once";
  }
  close(listener);
}

}  // namespace
}  // namespace sluice
