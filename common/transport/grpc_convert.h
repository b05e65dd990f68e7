// Converts between gRPC's types and ours.
//
// Memory: outgoing slices are lent to gRPC, which drops their owner once they are sent or lost.
// Small slices are copied, which is cheaper. Incoming slices stay in gRPC's receive buffers (8 or
// 64 KiB each) until the last Slice of their message is dropped: one slice keeps the whole message.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/slice.h"

namespace sluice {

grpc::ByteBuffer ToByteBuffer(const Message& message);
// Moves the slices of `buffer` to `message`. INTERNAL when gRPC cannot hand out its slices.
absl::Status FromByteBuffer(grpc::ByteBuffer* buffer, Message* message);

// Abseil's and gRPC's status codes have the same numbers. retry.h says which are worth a retry. A
// CANCELLED has details, which gRPC's own has not: a serialized google.rpc.Status, as all clients
// of gRPC expect, with the same code and message.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);
// The call ended with a CANCELLED that no handler gave: the server or the network cut it off. If
// the caller has not cancelled it, nobody has answered it.
bool WasCutOff(const grpc::Status& status);

// Turns a peer as gRPC names it, such as "ipv6:%5B::1%5D:80", into host:port. Other names stay.
std::string PeerAddress(const std::string& peer);

// The tag of an operation in a completion queue. `run` runs on the queue's thread.
struct GrpcEvent {
  std::function<void(bool ok)> run;
};

// Runs the events of `queue` until it is shut down and empty. After each event it looks for the
// next one for a while, yielding to other threads, before it sleeps: answers come within tens of
// microseconds, and waking a sleeping thread takes as long. An idle thread sleeps.
void RunGrpcEvents(grpc::CompletionQueue* queue);

// A deadline on the monotonic clock, since one in the time of day would move with every step of the
// machine's clock. For ClientContext::set_deadline, Channel::WaitForConnected and Server::Shutdown.
inline gpr_timespec GrpcDeadline(absl::Duration timeout) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN));
}

}  // namespace sluice
