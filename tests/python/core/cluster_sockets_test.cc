#include "python/core/cluster_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/shared_memory/file_descriptor.h"
#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Listening sockets and connections to them.
class ClusterSocketsTest : public ::testing::Test {
 protected:
  // Connects to a new server on loopback. Returns its port.
  uint16_t ConnectTcp(const std::string& name, const char* host) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, host, &at.sin_addr), 1);
    Connect(name, &at, sizeof(at));
    return ntohs(at.sin_port);
  }
  // On ::1. False: this machine has no IPv6.
  bool ConnectTcp6(const std::string& name, uint16_t* port) {
    sockaddr_in6 at = {};
    at.sin6_family = AF_INET6;
    at.sin6_addr = in6addr_loopback;
    const FileDescriptor tried(socket(AF_INET6, SOCK_STREAM, 0));
    if (bind(tried.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0) return false;
    Connect(name, &at, sizeof(at));
    *port = ntohs(at.sin6_port);
    return true;
  }
  void ConnectUnix(const std::string& name, const std::string& server) {
    sockaddr_un at = {};
    at.sun_family = AF_UNIX;
    const std::string path = std::string(1, '\0') + server;
    std::memcpy(at.sun_path, path.data(), path.size());
    Connect(name, &at, offsetof(sockaddr_un, sun_path) + path.size());
  }
  // The names of the connections that a forked child does not have after it has closed ours.
  std::vector<std::string> ClosedInChild(const ClusterSockets& sockets) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      sockets.CloseInForkedChild();
      for (const auto& [name, fd] : connections_)
        if (fcntl(fd.get(), F_GETFD) < 0)
          (void)!write(ends[1], (name + " ").data(), name.size() + 1);
      for (const auto& [name, fd] : servers_)
        if (fcntl(fd.get(), F_GETFD) < 0) (void)!write(ends[1], "server ", 7);
      _exit(0);
    }
    close(ends[1]);
    std::string text;
    char byte;
    while (read(ends[0], &byte, 1) == 1) text += byte;
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return absl::StrSplit(text, ' ', absl::SkipEmpty());
  }

 private:
  template <typename At>
  void Connect(const std::string& name, At* at, size_t bytes) {
    auto* const address = reinterpret_cast<sockaddr*>(at);
    socklen_t size = static_cast<socklen_t>(bytes);
    FileDescriptor server(socket(address->sa_family, SOCK_STREAM, 0));
    FileDescriptor client(socket(address->sa_family, SOCK_STREAM, 0));
    ASSERT_EQ(bind(server.get(), address, size), 0) << std::strerror(errno);
    ASSERT_EQ(listen(server.get(), 1), 0);
    ASSERT_EQ(getsockname(server.get(), address, &size), 0);
    ASSERT_EQ(connect(client.get(), address, size), 0) << std::strerror(errno);
    servers_[name] = std::move(server);
    connections_[name] = std::move(client);
  }

  std::map<std::string, FileDescriptor> servers_, connections_;
};

TEST_F(ClusterSocketsTest, AForkedChildKeepsOnlyWhatIsNotOfTheCluster) {
  ClusterSockets sockets(nullptr);
  const uint16_t scheduler = ConnectTcp("scheduler", "127.0.0.1");
  const uint16_t named = ConnectTcp("named", "127.0.0.1");
  ConnectTcp("user", "127.0.0.1");
  ConnectUnix("stream", absl::StrCat("sluice-", getpid()));
  ConnectUnix("user's", absl::StrCat("other-", getpid()));
  EXPECT_THAT(ClosedInChild(sockets), ElementsAre("stream"));
  sockets.Note(absl::StrCat("127.0.0.1:", scheduler));
  sockets.Note(absl::StrCat("127.0.0.1:", scheduler));
  sockets.Note(absl::StrCat("localhost:", named));
  sockets.Note("no address");
  EXPECT_THAT(ClosedInChild(sockets), UnorderedElementsAre("named", "scheduler", "stream"));
}

TEST_F(ClusterSocketsTest, AnotherHostWithTheSamePortIsNoMember) {
  ClusterSockets sockets(nullptr);
  const uint16_t port = ConnectTcp("user", "127.0.0.2");
  sockets.Note(absl::StrCat("127.0.0.1:", port));
  sockets.Note(absl::StrCat("localhost:", port));
  sockets.Note(absl::StrCat("[::1]:", port));
  EXPECT_THAT(ClosedInChild(sockets), IsEmpty());
}

TEST_F(ClusterSocketsTest, AMemberMayHaveAnAddressOfIpv6) {
  ClusterSockets sockets(nullptr);
  uint16_t scheduler = 0, user = 0;
  if (!ConnectTcp6("scheduler", &scheduler) || !ConnectTcp6("user", &user))
    GTEST_SKIP() << "this machine has no ::1";
  sockets.Note(absl::StrCat("[::1]:", scheduler));
  sockets.Note(absl::StrCat("127.0.0.1:", user));
  sockets.Note(absl::StrCat("[::2]:", user));
  EXPECT_THAT(ClosedInChild(sockets), ElementsAre("scheduler"));
}

}  // namespace
}  // namespace sluice
