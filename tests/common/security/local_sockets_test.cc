#include "common/security/local_sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "tests/common/security/server_process.h"

namespace sluice {
namespace {

using SocketSource = LocalSockets::Source;

TcpEnd EndOf(const char* address, uint16_t port) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
    return *TcpEnd::Of(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
  return *TcpEnd::Of(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
}

TEST(TcpEndTest, KnowsLoopbackAddresses) {
  for (const char* address : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(EndOf(address, 1).is_loopback()) << address;
  for (const char* address : {"10.0.0.1", "0.0.0.0", "128.0.0.1", "::", "::2", "::ffff:10.0.0.1"})
    EXPECT_FALSE(EndOf(address, 1).is_loopback()) << address;
}

TEST(TcpEndTest, MappedAddressesAreThoseOfIpv4) {
  EXPECT_EQ(EndOf("::ffff:127.0.0.1", 80).ToText(), "127.0.0.1:80");
  EXPECT_EQ(EndOf("::1", 80).ToText(), "[::1]:80");
}

TEST(TcpEndTest, OtherFamiliesAndCutAddressesAreNone) {
  sockaddr_in address = {};
  address.sin_family = AF_UNIX;
  EXPECT_FALSE(TcpEnd::Of(reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
  address.sin_family = AF_INET;
  EXPECT_FALSE(TcpEnd::Of(reinterpret_cast<const sockaddr*>(&address), 4));
}

TEST(LocalSocketsTest, BothSourcesSayTheSame) {
  ServerProcess::Options options;
  options.user = geteuid();
  const ServerProcess server(options);
  const ClientEnd client(server.port());
  server.AwaitOne();
  sockaddr_in own = {};
  socklen_t size = sizeof(own);
  ASSERT_EQ(getsockname(client.fd(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  const TcpEnd here = *TcpEnd::Of(reinterpret_cast<const sockaddr*>(&own), size);
  const TcpEnd there = EndOf("127.0.0.1", server.port());
  const LocalSockets tables(SocketSource::kProcTables),
      diagnostics(SocketSource::kSocketDiagnostics);
  const auto in_tables = tables.Connection(there, here);
  ASSERT_TRUE(in_tables.ok()) << in_tables.status();
  EXPECT_EQ(in_tables->state, TCP_ESTABLISHED);
  EXPECT_EQ(in_tables->user, geteuid());
  EXPECT_NE(in_tables->inode, 0u);
  ASSERT_EQ(tables.Listeners(there)->size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(tables.Listeners(here).status()));
  const auto asked = diagnostics.Connection(there, here);
  if (!asked.ok()) GTEST_SKIP() << "this kernel has no socket diagnostics";
  EXPECT_EQ(asked->inode, in_tables->inode);
  EXPECT_EQ(asked->user, in_tables->user);
  EXPECT_EQ(diagnostics.Listeners(there)->front().inode, tables.Listeners(there)->front().inode);
  EXPECT_TRUE(absl::IsNotFound(diagnostics.Listeners(here).status()));
  // A listener is no connection.
  EXPECT_TRUE(absl::IsNotFound(diagnostics.Connection(there, EndOf("127.0.0.1", 1)).status()));
}

}  // namespace
}  // namespace sluice
