#include "common/security/client_owner.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/common/base/free_port.h"
#include "tests/common/security/no_descriptors_left.h"
#include "tests/common/security/other_user.h"

namespace sluice {
namespace {

using Source = LocalSockets::Source;

sockaddr_in6 SocketAddress(const char* host, int port) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, host, &address.sin6_addr), 1);
  address.sin6_port = htons(static_cast<uint16_t>(port));
  return address;
}

sockaddr_in Address4(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int PortOf(int fd) {
  sockaddr_in6 address = {};
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin6_port);
}

template <class Address>
int ConnectFrom(int fd, const Address& to) {
  return connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
}

// A client of IPv4, at `from` or, with 0, at any port.
int Client4(int to, int from = 0) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  const sockaddr_in own = Address4(from);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0 &&
      ConnectFrom(fd, Address4(to)) == 0)
    return fd;
  close(fd);
  return -1;
}

// Breaks the connection off.
void Reset(int fd) {
  const linger now = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(fd);
}

// As gRPC makes it: IPv4 addresses are written as IPv6.
class Listener {
 public:
  explicit Listener(const char* host = "::ffff:127.0.0.1") : fd_(socket(AF_INET6, SOCK_STREAM, 0)) {
    const int off = 0;
    setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    const sockaddr_in6 address = SocketAddress(host, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 64), 0);
  }
  ~Listener() { close(fd_); }

  int port() const { return PortOf(fd_); }
  // -1 when nobody connects within 60 s.
  int Accept() const {
    pollfd waiting = {fd_, POLLIN, 0};
    return poll(&waiting, 1, 60'000) > 0 ? accept(fd_, nullptr, nullptr) : -1;
  }

 private:
  const int fd_;
};

class ClientOwnerTest : public testing::Test {
 protected:
  // With both sources, unless the kernel has no diagnostics.
  void ExpectOwner(int connection, uid_t user) {
    const auto owner = OwnerOfClient(connection);
    ASSERT_TRUE(owner.ok()) << owner.status();
    EXPECT_EQ(*owner, user);
    const auto in_table = Ask(connection, Source::kProcTables);
    ASSERT_TRUE(in_table.ok()) << in_table.status();
    EXPECT_EQ(*in_table, user);
    const auto diagnosed = Ask(connection, Source::kSocketDiagnostics);
    if (diagnosed.ok()) {
      EXPECT_EQ(*diagnosed, user);
    }
  }

  absl::StatusOr<uid_t> Ask(
      int connection, Source source, const std::function<void()>& before = [] {}) {
    return OwnerOfClientForTest(connection, source, before);
  }
};

TEST_F(ClientOwnerTest, ClientsOfAllFamiliesAreFound) {
  const Listener v4, v6("::1");
  const int plain = Client4(v4.port());
  const int mapped = socket(AF_INET6, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_STREAM, 0);
  for (const auto& [listener, client] : {std::pair(&v4, plain), {&v4, mapped}, {&v6, six}}) {
    if (client == mapped) {
      ASSERT_EQ(ConnectFrom(client, SocketAddress("::ffff:127.0.0.1", v4.port())), 0);
    } else if (client == six) {
      ASSERT_EQ(ConnectFrom(client, SocketAddress("::1", v6.port())), 0);
    }
    const int accepted = listener->Accept();
    ExpectOwner(accepted, geteuid());
    close(accepted);
    close(client);
  }
}

TEST_F(ClientOwnerTest, PeersThatHaveGoneAreNotFound) {
  const Listener listener;
  for (const bool reset : {false, true}) {
    const int client = Client4(listener.port());
    const int accepted = listener.Accept();
    reset ? Reset(client) : (void)close(client);
    for (const auto& owner : {OwnerOfClient(accepted), Ask(accepted, Source::kSocketDiagnostics),
                              Ask(accepted, Source::kProcTables)})
      EXPECT_TRUE(absl::IsNotFound(owner.status())) << owner.status();
    close(accepted);
  }
}

TEST_F(ClientOwnerTest, WithoutDescriptorsTheCallerIsNotKnownForNow) {
  const Listener listener;
  const int client = Client4(listener.port()), accepted = listener.Accept();
  {
    const NoDescriptorsLeft none;
    EXPECT_TRUE(absl::IsUnavailable(OwnerOfClient(accepted).status()));
  }
  ExpectOwner(accepted, geteuid());
  close(accepted);
  close(client);
}

TEST_F(ClientOwnerTest, AnotherUserIsFound) {
  if (geteuid() != 0) GTEST_SKIP() << "the test does not run as root";
  const Listener listener;
  const int port = listener.port();
  const ProcessOfUser nobody(kNobody, [port] {
    if (Client4(port) >= 0) pause();
  });
  const int accepted = listener.Accept();
  ExpectOwner(accepted, kNobody);
  close(accepted);
}

TEST_F(ClientOwnerTest, AConnectionIsNotThatOfWhoTakesItsPortOver) {
  for (const Source source : {Source::kSocketDiagnostics, Source::kProcTables}) {
    const Listener listener;
    const int first = Client4(listener.port());
    const int port = PortOf(first), accepted = listener.Accept();
    int second = -1;
    const auto owner = Ask(accepted, source, [&] {
      Reset(first);
      second = Client4(listener.port(), port);
    });
    ASSERT_GE(second, 0);
    EXPECT_TRUE(absl::IsNotFound(owner.status())) << owner.status();
    const int accepted_second = listener.Accept();
    ExpectOwner(accepted_second, geteuid());
    for (const int fd : {accepted, second, accepted_second}) close(fd);
  }
}

// The client has ended, but the end of its bytes does not fit into the buffer of the server, whose
// end stays established. Old kernels say that such a socket is root's.
TEST_F(ClientOwnerTest, AnEndThatNoProcessHasIsNobodys) {
  const Listener listener;
  const int client = Client4(listener.port()), accepted = listener.Accept();
  const std::string bytes(1 << 16, 'x');
  while (send(client, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  close(client);
  EXPECT_TRUE(absl::IsUnknown(OwnerOfClient(accepted).status()));
  for (const Source source : {Source::kSocketDiagnostics, Source::kProcTables})
    EXPECT_FALSE(Ask(accepted, source).ok());
  close(accepted);
}

// Another user connects, sends and breaks off in a loop, always from the same port, which the
// honest client uses too. Each says in its first byte who it is.
TEST_F(ClientOwnerTest, BytesOfAnotherUserAreNeverTakenForOurs) {
  if (geteuid() != 0) GTEST_SKIP() << "the test does not run as root";
  const Listener listener;
  const int to = listener.port(), from = FreePort();
  const auto call = [to, from](char who, useconds_t stay) {
    const int fd = Client4(to, from);
    if (fd < 0) return false;
    (void)!send(fd, &who, 1, MSG_NOSIGNAL);
    usleep(stay);
    Reset(fd);
    return true;
  };
  const ProcessOfUser nobody(kNobody, [call] {
    for (;;) call('n', 0);
  });
  std::atomic<bool> ended{false};
  std::thread honest([&] {
    while (!ended) call('o', 200);
  });
  int admitted = 0, refused = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [begin] { return std::chrono::steady_clock::now() - begin; };
  while (passed() < std::chrono::milliseconds(800) ||
         ((admitted == 0 || refused == 0) && passed() < std::chrono::seconds(60))) {
    const int accepted = listener.Accept();
    if (accepted < 0) break;
    const auto owner = OwnerOfClient(accepted);
    char who = 0;
    if (owner.ok() && *owner == 0) {
      if (recv(accepted, &who, 1, 0) == 1) {
        EXPECT_EQ(who, 'o');
      }
      ++admitted;
    } else {
      ++refused;
    }
    close(accepted);
  }
  ended = true;
  honest.join();
  EXPECT_GT(admitted, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace sluice
