#include "common/security/local_peers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/common/security/no_descriptors_left.h"

namespace sluice {
namespace {

using Source = LocalPeers::Source;
constexpr uid_t kNobody = 65534;

// A listener on an IPv4 loopback address.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    port_ = PortOf(fd_);
  }
  ~Listener() { close(fd_); }

  int port() const { return port_; }
  static int PortOf(int fd) {
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
  }
  // Returns the client's end.
  int Connect() const {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port_));
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return client;
  }
  static std::string NameOf(int client) { return absl::StrCat("ipv4:127.0.0.1:", PortOf(client)); }
  // Runs `use` with the name of a connection that a process of this user has opened.
  // REQUIRES: the test runs as root.
  void WithConnectionOf(uid_t user, const std::function<void(const std::string&)>& use) const {
    int report[2], release[2];
    ASSERT_EQ(pipe(report), 0);
    ASSERT_EQ(pipe(release), 0);
    const pid_t child = fork();
    if (child == 0) {
      int port = 0;
      if (setuid(user) == 0) port = PortOf(Connect());
      char go;
      if (write(report[1], &port, sizeof(port)) < 0 || read(release[0], &go, 1) < 0) _exit(1);
      _exit(0);
    }
    int port = 0;
    ASSERT_EQ(read(report[0], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
    use(absl::StrCat("ipv4:127.0.0.1:", port));
    ASSERT_EQ(write(release[1], "x", 1), 1);
    waitpid(child, nullptr, 0);
    for (const int fd : {report[0], report[1], release[0], release[1]}) close(fd);
  }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(LocalPeersTest, AConnectionOfTheSameUserIsServed) {
  const Listener listener;
  const int client = listener.Connect();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const LocalPeers peers(host, listener.port(), geteuid());
    EXPECT_EQ(peers.Check(Listener::NameOf(client)), absl::OkStatus()) << host;
  }
  const LocalPeers peers("127.0.0.1", listener.port(), geteuid());
  for (const Source source : {Source::kSocketDiagnostics, Source::kProcTable}) {
    const auto owner = peers.OwnerOf(Listener::NameOf(client), source);
    // Not every kernel has socket diagnostics.
    if (source == Source::kSocketDiagnostics && peers.source() != source) continue;
    EXPECT_EQ(*owner, geteuid());
  }
  close(client);
}

TEST(LocalPeersTest, AConnectionThatIsNotOpenIsRefused) {
  const Listener listener, other;
  const LocalPeers peers("127.0.0.1", listener.port(), geteuid());
  const int closed = listener.Connect(), elsewhere = other.Connect();
  const std::string name = Listener::NameOf(closed);
  close(closed);
  for (const std::string& peer :
       {name, Listener::NameOf(elsewhere), absl::StrCat("ipv4:127.0.0.1:", listener.port())}) {
    EXPECT_EQ(peers.Check(peer).code(), absl::StatusCode::kPermissionDenied) << peer;
    for (const Source source : {Source::kSocketDiagnostics, Source::kProcTable})
      EXPECT_EQ(peers.OwnerOf(peer, source).status().code(), absl::StatusCode::kNotFound) << peer;
  }
  close(elsewhere);
}

TEST(LocalPeersTest, AnAddressThatIsNotOneOfTcpIsRefused) {
  const LocalPeers peers("127.0.0.1", 1, geteuid());
  for (const char* peer : {"", "unix:/tmp/s", "ipv4:", "ipv4:127.0.0.1", "ipv4:127.0.0:7",
                           "ipv6:%5B::1%5D", "ipv6:%5Bx%5D:7", "ipv4:127.0.0.1:7x"}) {
    EXPECT_EQ(peers.Check(peer).code(), absl::StatusCode::kPermissionDenied) << peer;
  }
}

TEST(LocalPeersTest, AnotherUserIsRefused) {
  const Listener listener;
  if (geteuid() != 0) {
    const int client = listener.Connect();
    const LocalPeers peers("127.0.0.1", listener.port(), geteuid() + 1);
    EXPECT_EQ(peers.Check(Listener::NameOf(client)).code(), absl::StatusCode::kPermissionDenied);
    close(client);
    return;
  }
  listener.WithConnectionOf(kNobody, [&](const std::string& peer) {
    const LocalPeers of_root("127.0.0.1", listener.port(), 0);
    EXPECT_EQ(of_root.Check(peer).code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(*of_root.OwnerOf(peer, Source::kProcTable), kNobody);
    EXPECT_EQ(LocalPeers("127.0.0.1", listener.port(), kNobody).Check(peer), absl::OkStatus());
  });
}

TEST(LocalPeersTest, RootIsServedByEveryUser) {
  if (geteuid() != 0) GTEST_SKIP() << "the test does not run as root";
  const Listener listener;
  const int client = listener.Connect();
  EXPECT_EQ(LocalPeers("127.0.0.1", listener.port(), kNobody).Check(Listener::NameOf(client)),
            absl::OkStatus());
  close(client);
}

TEST(LocalPeersTest, WithoutDescriptorsTheCallerIsNotDeniedButToldToTryAgain) {
  const Listener listener;
  const LocalPeers peers("127.0.0.1", listener.port(), getuid());
  const int client = listener.Connect();
  const std::string name = Listener::NameOf(client);
  ASSERT_TRUE(peers.Check(name).ok());
  {
    const NoDescriptorsLeft none;
    EXPECT_TRUE(absl::IsUnavailable(peers.Check(name)));
    for (const Source source : {Source::kSocketDiagnostics, Source::kProcTable})
      EXPECT_TRUE(absl::IsUnavailable(peers.OwnerOf(name, source).status()));
  }
  EXPECT_TRUE(peers.Check(name).ok());
  close(client);
}

}  // namespace
}  // namespace sluice
