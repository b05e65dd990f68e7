#include "common/shared_memory/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/shared_memory/sealed_memory.h"

namespace sluice {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

std::string Name(const char* test) { return absl::StrCat("sluice-test-", getpid(), "-", test); }

// Both ends of a connection.
struct Pair {
  explicit Pair(const char* test) {
    absl::StatusOr<UnixListener> listener = UnixListener::Listen(Name(test));
    EXPECT_TRUE(listener.ok()) << listener.status();
    absl::StatusOr<UnixConnection> connected = UnixConnection::Connect(Name(test));
    EXPECT_TRUE(connected.ok()) << connected.status();
    absl::StatusOr<UnixConnection> accepted = listener->Accept();
    EXPECT_TRUE(accepted.ok()) << accepted.status();
    client = *std::move(connected);
    server = *std::move(accepted);
  }
  UnixConnection client, server;
};

TEST(UnixSocketTest, PacketsKeepTheirBordersAndOrder) {
  Pair pair("borders");
  ASSERT_TRUE(pair.client.Send("one").ok());
  ASSERT_TRUE(pair.client.Send("two").ok());
  EXPECT_EQ(pair.server.Receive(kLong)->bytes, "one");
  EXPECT_EQ(pair.server.Receive(kLong)->bytes, "two");
  ASSERT_TRUE(pair.server.Send("three").ok());
  EXPECT_EQ(pair.client.Receive(kLong)->bytes, "three");
}

TEST(UnixSocketTest, DescriptorsArriveAndNameTheSameMemory) {
  Pair pair("descriptors");
  absl::StatusOr<SealedMemory> memory = SealedMemory::Create("test", 4096);
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_TRUE(pair.client.Send("memory", {memory->fd()}).ok());
  absl::StatusOr<UnixConnection::Packet> packet = pair.server.Receive(kLong);
  ASSERT_TRUE(packet.ok()) << packet.status();
  ASSERT_EQ(packet->descriptors.size(), 1u);
  absl::StatusOr<SealedMemory> theirs =
      SealedMemory::Map(std::move(packet->descriptors[0]), memory->size());
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  memory->data()[0] = 9;
  EXPECT_EQ(theirs->data()[0], 9);
}

TEST(UnixSocketTest, TheNameIsFreeOnceTheListenerIsGone) {
  {
    absl::StatusOr<UnixListener> listener = UnixListener::Listen(Name("free"));
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_EQ(UnixListener::Listen(Name("free")).status().code(), absl::StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(UnixConnection::Connect(Name("free")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(UnixListener::Listen(Name("free")).ok());
}

TEST(UnixSocketTest, ReceiveWaitsNoLongerThanAllowed) {
  Pair pair("silent");
  EXPECT_EQ(pair.server.Receive(absl::Milliseconds(1)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(UnixSocketTest, TheEndOfAProcessIsSeenHoweverItEnds) {
  const std::string name = Name("killed");
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(name);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<UnixConnection> connection = UnixConnection::Connect(name);
    if (connection.ok()) connection->Send("here").IgnoreError();
    pause();
    _exit(0);
  }
  absl::StatusOr<UnixConnection> connection = absl::UnavailableError("not yet");
  while (!connection.ok()) connection = listener->Accept();
  EXPECT_EQ(connection->Receive(kLong)->bytes, "here");
  kill(child, SIGKILL);
  EXPECT_EQ(connection->Receive(kLong).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(connection->Send("late").code(), absl::StatusCode::kUnavailable);
  waitpid(child, nullptr, 0);
}

TEST(UnixSocketTest, APeerThatDoesNotReadIsNamedInsteadOfWaitedFor) {
  Pair pair("full");
  const std::string packet(UnixConnection::kMaxPacketBytes, 'x');
  absl::Status status;
  for (int i = 0; i < 10000 && status.ok(); ++i) status = pair.client.Send(packet);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(UnixSocketTest, LongerPacketsAreRefusedAndTheirDescriptorsClosed) {
  Pair pair("long");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_TRUE(
      pair.client.Send(std::string(UnixConnection::kMaxPacketBytes + 1, 'x'), {ends[1]}).ok());
  close(ends[1]);
  EXPECT_EQ(pair.server.Receive(kLong).status().code(), absl::StatusCode::kInvalidArgument);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);  // the end of the pipe: nobody has the other end any more
  close(ends[0]);
}

TEST(UnixSocketTest, ProcessesOfOtherUsersAreTurnedAway) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string name = Name("user");
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(name);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(1);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    _exit(connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 ? 0 : 2);
  }
  int exit_status = -1;
  waitpid(child, &exit_status, 0);
  ASSERT_EQ(exit_status, 0);
  EXPECT_EQ(listener->Accept().status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(UnixSocketTest, NamesOfAnImpossibleLengthAreRefused) {
  EXPECT_EQ(UnixListener::Listen("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(UnixConnection::Connect(std::string(101, 'n')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
