#include "common/transport/grpc_convert.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <google/protobuf/unknown_field_set.h>

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

int freed = 0, freed_by_byte_buffer = 0;

// Looks whether gRPC's grpc_byte_buffer_destroy is among the callers.
void NoteWhoFrees(void*) {
  ++freed;
  void* frames[64];
  const int n = backtrace(frames, 64);
  for (int i = 0; i < n; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_sname == nullptr) continue;
    if (std::string(info.dli_sname) == "grpc_byte_buffer_destroy") {
      ++freed_by_byte_buffer;
      return;
    }
  }
}

// Elsewhere gRPC 1.51 has no execution context. It crashes when it frees bytes there while the
// resource quota is exhausted.
TEST(GrpcConvertTest, BytesAreFreedWhereGrpcHasAnExecutionContext) {
  static char memory[10000];
  Message message;
  {
    const grpc::Slice slices[] = {grpc::Slice(memory, 5000, NoteWhoFrees),
                                  grpc::Slice(memory + 5000, 5000, NoteWhoFrees)};
    grpc::ByteBuffer buffer(slices, 2);
    ASSERT_TRUE(FromByteBuffer(&buffer, &message).ok());
    EXPECT_FALSE(buffer.Valid());
  }
  ASSERT_EQ(message.size(), 2u);
  message.pop_back();
  EXPECT_EQ(freed, 0);
  message.clear();
  EXPECT_EQ(freed, 2);
  EXPECT_EQ(freed_by_byte_buffer, 2);
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

TEST(GrpcConvertTest, TheDetailsOfACancelledAreAStatusThatEveryClientCanRead) {
  for (const std::string& message :
       {std::string("the job is over"), std::string(), std::string(1000, 'x')}) {
    const grpc::Status status = ToGrpcStatus(absl::CancelledError(message));
    EXPECT_EQ(status.error_message(), message);
    // google.rpc.Status: int32 code = 1; string message = 2; repeated google.protobuf.Any details
    // = 3.
    google::protobuf::UnknownFieldSet fields;
    ASSERT_TRUE(fields.ParseFromString(status.error_details()));
    ASSERT_EQ(fields.field_count(), 2);
    EXPECT_EQ(fields.field(0).number(), 1);
    ASSERT_EQ(fields.field(0).type(), google::protobuf::UnknownField::TYPE_VARINT);
    EXPECT_EQ(fields.field(0).varint(), grpc::StatusCode::CANCELLED);
    EXPECT_EQ(fields.field(1).number(), 2);
    ASSERT_EQ(fields.field(1).type(), google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED);
    EXPECT_EQ(fields.field(1).length_delimited(), message);
  }
  EXPECT_EQ(ToGrpcStatus(absl::UnavailableError("stopping")).error_details(), "");
}

TEST(GrpcConvertTest, ACancelledOfAHandlerIsToldFromACallThatWasCutOff) {
  EXPECT_FALSE(WasCutOff(ToGrpcStatus(absl::CancelledError("the job is over"))));
  EXPECT_FALSE(WasCutOff(ToGrpcStatus(absl::UnavailableError("stopping"))));
  EXPECT_TRUE(WasCutOff(grpc::Status(grpc::StatusCode::CANCELLED, "Cancelled on the server side")));
  EXPECT_TRUE(WasCutOff(grpc::Status::CANCELLED));
}

}  // namespace
}  // namespace sluice
