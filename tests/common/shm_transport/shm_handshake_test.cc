#include "common/shm_transport/shm_handshake.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "common/base/boot_id.h"
#include "proto/pserver.pb.h"
#include "tests/common/transport/in_process_transport.h"

namespace sluice {
namespace {

constexpr size_t kRing = 8192;
constexpr absl::Duration kLong = absl::Seconds(60);

UnixConnection::Packet Hello(const ShmHello& hello, const std::string& token, int fd) {
  UnixConnection::Packet packet;
  packet.bytes.assign(reinterpret_cast<const char*>(&hello), sizeof(hello));
  packet.bytes += token;
  if (fd >= 0) packet.descriptors.emplace_back(dup(fd));
  return packet;
}

ShmHello GoodHello() {
  ShmHello hello;
  hello.ring_bytes = kRing;
  return hello;
}

class ReadHelloTest : public ::testing::Test {
 protected:
  ReadHelloTest() : memory_(*SealedMemory::Create("test", ShmLink::MemoryBytes(kRing))) {}
  absl::StatusCode Code(UnixConnection::Packet packet) {
    std::string token;
    return ReadHello(std::move(packet), kRing, &token).status().code();
  }
  SealedMemory memory_;
};

TEST_F(ReadHelloTest, MapsTheMemoryOfTheClient) {
  std::string token;
  const auto link = ReadHello(Hello(GoodHello(), "token", memory_.fd()), kRing, &token);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(token, "token");
  memory_.data()[5000] = 7;
  EXPECT_EQ(link->memory.data()[5000], 7);
  EXPECT_EQ(link->data(true) + kRing, link->data(false));
  EXPECT_EQ(link->data(false) + kRing, link->memory.data() + link->memory.size());
}

TEST_F(ReadHelloTest, OtherHellosAreRefused) {
  UnixConnection::Packet packet = Hello(GoodHello(), "", memory_.fd());
  packet.bytes.resize(sizeof(ShmHello) - 1);
  EXPECT_EQ(Code(std::move(packet)), absl::StatusCode::kInvalidArgument);
  for (const int field : {0, 1, 2}) {
    ShmHello hello = GoodHello();
    if (field == 0) hello.magic = 1;
    if (field == 1) hello.protocol = 2;
    if (field == 2) hello.ring_bytes = 2 * kRing;
    EXPECT_EQ(Code(Hello(hello, "", memory_.fd())), absl::StatusCode::kInvalidArgument) << field;
  }
}

TEST_F(ReadHelloTest, OtherDescriptorsAreRefused) {
  EXPECT_EQ(Code(Hello(GoodHello(), "", -1)), absl::StatusCode::kInvalidArgument);
  UnixConnection::Packet two = Hello(GoodHello(), "", memory_.fd());
  two.descriptors.emplace_back(dup(memory_.fd()));
  EXPECT_EQ(Code(std::move(two)), absl::StatusCode::kInvalidArgument);
  const SealedMemory small = *SealedMemory::Create("test", ShmLink::MemoryBytes(kRing) - 1);
  EXPECT_EQ(Code(Hello(GoodHello(), "", small.fd())), absl::StatusCode::kInvalidArgument);
  const FileDescriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), ShmLink::MemoryBytes(kRing)), 0);
  EXPECT_EQ(Code(Hello(GoodHello(), "", unsealed.get())), absl::StatusCode::kInvalidArgument);
}

TEST(OpenShmLinkTest, ImpossibleSizesOfAServerAreRefused) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{2048}, uint64_t{12288}, uint64_t{1} << 40}) {
    InProcessTransport control;
    control.RegisterUnary("p", kOpenSharedMemoryMethod, [bytes](const std::string&) {
      OpenSharedMemoryReply reply;
      reply.set_socket("nobody");
      reply.set_ring_bytes(bytes);
      return absl::StatusOr<std::string>(reply.SerializeAsString());
    });
    EXPECT_EQ(OpenShmLink(&control, "p", BootId(), kLong).status().code(),
              absl::StatusCode::kDataLoss)
        << bytes;
  }
}

TEST(OpenShmLinkTest, AServerThatCannotBeReachedIsUnavailable) {
  InProcessTransport control;
  EXPECT_EQ(OpenShmLink(&control, "p", BootId(), kLong).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice
