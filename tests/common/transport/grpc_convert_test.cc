#include "common/transport/grpc_convert.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(GrpcConvertTest, LongSlicesAreLentAndDroppedWithTheBuffer) {
  auto memory = std::make_shared<std::string>(10000, 'm');
  {
    grpc::ByteBuffer buffer = ToByteBuffer({Slice(memory->data(), memory->size(), memory)});
    EXPECT_EQ(memory.use_count(), 2);
    Message message;
    ASSERT_TRUE(FromByteBuffer(&buffer, &message).ok());
    EXPECT_EQ(buffer.Length(), 0u);
    ASSERT_EQ(message.size(), 1u);
    // Neither direction copies.
    EXPECT_EQ(static_cast<const void*>(message[0].data()), memory->data());
    message.clear();
    EXPECT_EQ(memory.use_count(), 1);
  }
}

TEST(GrpcConvertTest, ShortSlicesAreCopiedAndEmptyOnesDropped) {
  std::string text = "short";
  grpc::ByteBuffer buffer =
      ToByteBuffer({Slice(), Slice(text.data(), text.size(), nullptr), Slice()});
  text = "other";
  Message message;
  ASSERT_TRUE(FromByteBuffer(&buffer, &message).ok());
  ASSERT_EQ(message.size(), 1u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(message[0].data()), message[0].size()),
            "short");
}

TEST(GrpcConvertTest, EmptyMessageStaysAMessage) {
  grpc::ByteBuffer buffer = ToByteBuffer({});
  EXPECT_TRUE(buffer.Valid());
  Message message = {Slice::FromString("x")};
  ASSERT_TRUE(FromByteBuffer(&buffer, &message).ok());
  EXPECT_EQ(MessageSize(message), 0u);
}

TEST(GrpcConvertTest, PeersBecomeHostAndPort) {
  EXPECT_EQ(PeerAddress("ipv4:10.0.0.7:5123"), "10.0.0.7:5123");
  EXPECT_EQ(PeerAddress("ipv6:%5B::1%5D:5123"), "[::1]:5123");
  EXPECT_EQ(PeerAddress("ipv6:[::1]:5123"), "[::1]:5123");
  EXPECT_EQ(PeerAddress("ipv6:%5Bfe80::1%25eth0%5D:1"), "[fe80::1%eth0]:1");
  EXPECT_EQ(PeerAddress("unix:/run/x"), "unix:/run/x");
}

TEST(GrpcConvertTest, EveryStatusCodeSurvives) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status) << code;
  }
}

}  // namespace
}  // namespace sluice
