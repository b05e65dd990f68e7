#include "common/transport/grpc_convert.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <grpcpp/support/slice.h>
#include <sched.h>

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

// Up to this size a copy costs less than lending: both allocate once, but a copy has no owner to
// count.
constexpr size_t kCopyBytes = 256;
// How long a thread polls for events before it sleeps: about the cost of sleeping and being woken.
constexpr std::chrono::microseconds kLook(50);

// Owns the bytes of a received message. The slices are dropped first, so that gRPC frees the bytes
// in grpc_byte_buffer_destroy, where it has an execution context. ~grpc::Slice has none, and if it
// frees bytes while the resource quota is exhausted, gRPC 1.51 wakes its reclaimer without one and
// crashes.
struct Received {
  grpc::ByteBuffer buffer;
  std::vector<grpc::Slice> slices;
};

void DropOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

grpc::Slice Lend(const Slice& slice) {
  if (slice.size() <= kCopyBytes) return grpc::Slice(slice.data(), slice.size());
  if (slice.owner() == nullptr) {
    return grpc::Slice(slice.data(), slice.size(), grpc::Slice::STATIC_SLICE);
  }
  return grpc::Slice(const_cast<uint8_t*>(slice.data()), slice.size(), DropOwner,
                     new std::shared_ptr<const void>(slice.owner()));
}

// Waits for the next event, first awake and then asleep. Returns false when the queue is shut down
// and empty.
bool Next(grpc::CompletionQueue* queue, void** event, bool* ok) {
  const auto end = std::chrono::steady_clock::now() + kLook;
  do {
    switch (queue->AsyncNext(event, ok, gpr_time_0(GPR_CLOCK_MONOTONIC))) {
      case grpc::CompletionQueue::GOT_EVENT:
        return true;
      case grpc::CompletionQueue::SHUTDOWN:
        return false;
      case grpc::CompletionQueue::TIMEOUT:
        sched_yield();
    }
  } while (std::chrono::steady_clock::now() < end);
  return queue->Next(event, ok);
}

// A serialized google.rpc.Status, whose .proto file Debian's packages of gRPC do not have.
std::string EncodeRpcStatus(const absl::Status& status) {
  constexpr uint32_t kCode = 1 << 3 | 0, kMessage = 2 << 3 | 2;  // field number and wire type
  const std::string message(status.message());
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(kCode);
  out.WriteVarint32(static_cast<uint32_t>(status.code()));
  out.WriteTag(kMessage);
  out.WriteVarint32(static_cast<uint32_t>(message.size()));
  out.WriteString(message);
  out.Trim();
  return bytes;
}

}  // namespace

std::string PeerAddress(const std::string& peer) {
  absl::string_view address = peer;
  if (!absl::ConsumePrefix(&address, "ipv4:")) absl::ConsumePrefix(&address, "ipv6:");
  return absl::StrReplaceAll(address, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

void RunGrpcEvents(grpc::CompletionQueue* queue) {
  void* event;
  for (bool ok; Next(queue, &event, &ok);) static_cast<GrpcEvent*>(event)->run(ok);
}

grpc::ByteBuffer ToByteBuffer(const Message& message) {
  std::vector<grpc::Slice> slices;
  slices.reserve(message.size());
  for (const Slice& slice : message) {
    if (slice.size() > 0) slices.push_back(Lend(slice));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status FromByteBuffer(grpc::ByteBuffer* buffer, Message* message) {
  auto received = std::make_shared<Received>();
  received->buffer.Swap(buffer);
  const grpc::Status dumped = received->buffer.Dump(&received->slices);
  if (!dumped.ok()) {
    return absl::InternalError(
        absl::StrCat("cannot read a received message: ", dumped.error_message()));
  }
  message->clear();
  message->reserve(received->slices.size());
  for (const grpc::Slice& slice : received->slices)
    message->emplace_back(slice.begin(), slice.size(), received);
  return absl::OkStatus();
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      absl::IsCancelled(status) ? EncodeRpcStatus(status) : "");
}

bool WasCutOff(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::CANCELLED && status.error_details().empty();
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace sluice
