// Between gRPC's types and ours: what both halves of the gRPC transport share.
//
// Memory: outgoing slices are lent to gRPC, which drops their owner when they are sent or lost;
// small ones are copied, that is cheaper. Incoming slices stay in gRPC's receive buffers (8 or 64
// KiB each) until the last Slice of their message is dropped.
#pragma once

#include <grpcpp/completion_queue.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <deque>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/slice.h"

namespace sluice {

grpc::ByteBuffer ToByteBuffer(const Message& message);
// Empties `buffer`. INTERNAL when gRPC cannot give its slices out.
absl::Status FromByteBuffer(grpc::ByteBuffer* buffer, Message* message);

// The codes have the same numbers.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// What a completion queue hands back: runs on the queue's thread.
struct GrpcEvent {
  std::function<void(bool ok)> run;
};

// Runs the events of `queue` until it is shut down and empty. After each event it looks for the
// next for a while before it sleeps, and lets other threads run meanwhile: answers come within tens
// of microseconds, and to wake a sleeping thread takes as long. An idle thread sleeps.
void RunGrpcEvents(grpc::CompletionQueue* queue);

}  // namespace sluice
