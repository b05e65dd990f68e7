#include "common/security/server_owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/common/base/free_port.h"
#include "tests/common/security/no_descriptors_left.h"
#include "tests/common/security/server_process.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using OwnerSource = LocalSockets::Source;

bool IsRoot() { return geteuid() == 0; }
// A user to whom this process's servers, or those of `server`, are foreign.
uid_t OtherThan(uid_t server) { return server + 1; }
uid_t ServerUser() { return IsRoot() ? kNobody : geteuid(); }

class ServerOwnerTest : public ::testing::TestWithParam<OwnerSource> {
 protected:
  void SetUp() override {
    const ServerProcess server({geteuid()});
    const ClientEnd client(server.port());
    if (!CheckServerOf(client.fd(), geteuid(), GetParam()).ok())
      GTEST_SKIP() << "this kernel does not have this source";
  }
  absl::Status Check(const ServerProcess& server, uid_t user) {
    const ClientEnd client(server.port());
    EXPECT_EQ(client.error(), 0);
    return CheckServerOf(client.fd(), user, GetParam());
  }
  // Whoever accepts, and however the server listens.
  void ExpectOnlyItsUserTrusts(ServerProcess::Options options) {
    options.user = ServerUser();
    const ServerProcess server(options);
    EXPECT_EQ(Check(server, options.user), absl::OkStatus());
    const absl::Status refused = Check(server, OtherThan(options.user));
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr(absl::StrCat("user ", options.user)));
    EXPECT_THAT(refused.message(), HasSubstr(absl::StrCat("127.0.0.1:", server.port())));
  }
};

TEST_P(ServerOwnerTest, AServerThatHasAcceptedIsTrustedByItsUserAlone) {
  ServerProcess::Options options;
  options.user = ServerUser();
  const ServerProcess server(options);
  const ClientEnd client(server.port());
  server.AwaitOne();
  EXPECT_EQ(CheckServerOf(client.fd(), options.user, GetParam()), absl::OkStatus());
  EXPECT_TRUE(
      absl::IsPermissionDenied(CheckServerOf(client.fd(), OtherThan(options.user), GetParam())));
}

TEST_P(ServerOwnerTest, AConnectionThatWaitsBelongsToTheUserOfItsListener) {
  for (const char* address : {"127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"}) {
    SCOPED_TRACE(address);
    ServerProcess::Options options;
    options.address = address;
    options.accepts = false;
    ExpectOnlyItsUserTrusts(options);
  }
}

TEST_P(ServerOwnerTest, AHandshakeThatTheServerDefersIsRefused) {
  ServerProcess::Options options;
  options.user = geteuid();
  options.defers = true;
  const absl::Status refused = Check(ServerProcess(options), options.user);
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
}

TEST_P(ServerOwnerTest, RootIsTrustedByEveryUser) {
  if (!IsRoot()) GTEST_SKIP() << "the test does not run as root";
  for (const bool accepts : {true, false}) {
    ServerProcess::Options options;
    options.accepts = accepts;
    EXPECT_EQ(Check(ServerProcess(options), kNobody), absl::OkStatus());
  }
}

TEST_P(ServerOwnerTest, AConnectionWhoseServerHasGoneIsRefused) {
  ServerProcess::Options options;
  options.user = geteuid();
  ServerProcess server(options);
  const ClientEnd client(server.port());
  server.Stop();
  EXPECT_TRUE(absl::IsUnavailable(CheckServerOf(client.fd(), geteuid(), GetParam())));
}

// The new listener at the port has nothing to do with the connection.
TEST_P(ServerOwnerTest, AListenerThatFollowsDoesNotVouchForAnOlderConnection) {
  ServerProcess::Options options;
  options.user = ServerUser();
  options.port = static_cast<uint16_t>(FreePort());
  ServerProcess before(options);
  const ClientEnd client(before.port());
  before.AwaitOne();
  before.Stop();
  options.user = geteuid();
  const ServerProcess after(options);
  EXPECT_FALSE(CheckServerOf(client.fd(), geteuid(), GetParam()).ok());
}

INSTANTIATE_TEST_SUITE_P(Sources, ServerOwnerTest,
                         ::testing::Values(OwnerSource::kSocketDiagnostics,
                                           OwnerSource::kProcTables));

TEST(CheckServerOfTest, AsksAKernelThatHasOneSourceOrBoth) {
  const ServerProcess server({geteuid()});
  const ClientEnd client(server.port());
  EXPECT_EQ(CheckServerOf(client.fd(), geteuid()), absl::OkStatus());
  const int unconnected = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_FALSE(CheckServerOf(unconnected, geteuid()).ok());
  close(unconnected);
}

TEST(CheckServerOfTest, WithoutDescriptorsNobodyIsTrusted) {
  const ServerProcess server({geteuid()});
  const ClientEnd client(server.port());
  server.AwaitOne();
  const NoDescriptorsLeft none;
  EXPECT_TRUE(absl::IsUnavailable(CheckServerOf(client.fd(), geteuid())));
  for (const OwnerSource source : {OwnerSource::kSocketDiagnostics, OwnerSource::kProcTables})
    EXPECT_TRUE(absl::IsUnavailable(CheckServerOf(client.fd(), geteuid(), source)));
}

TEST(CheckListenersAtTest, NamesAnotherUserWhoListens) {
  ServerProcess::Options options;
  options.user = ServerUser();
  options.port = static_cast<uint16_t>(FreePort());
  ServerProcess server(options);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    EXPECT_EQ(CheckListenersAt({host, server.port()}, options.user), absl::OkStatus());
    const absl::Status refused = CheckListenersAt({host, server.port()}, OtherThan(options.user));
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  }
  server.Stop();
  EXPECT_EQ(CheckListenersAt({"127.0.0.1", server.port()}, OtherThan(options.user)),
            absl::OkStatus());
}

}  // namespace
}  // namespace sluice
