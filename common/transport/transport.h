// The seam to the network for the data plane: streams of messages between a worker and a pserver.
//
// gRPC implements it (grpc_transport), memory does for tests (in_process_transport), and a
// decorator cuts streams at random (faulty_transport).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/slice.h"

namespace sluice {

// The method of the data plane's streams (proto/pserver.proto).
inline constexpr char kExchangeMethod[] = "/sluice.Pserver/Exchange";

// One end of an open bidirectional stream. Messages arrive in order, or the stream breaks.
// Thread safety: Send and Close may be called from any thread.
class Stream {
 public:
  // A client's end: cancels the stream, on_closed (CANCELLED) comes unless it came before, and no
  // callback runs once this returns. Never under a lock that a callback takes. A server's end may
  // go at any time: the handler's stream lives until OnClosed.
  virtual ~Stream() = default;
  // Queues a message; never blocks. What is queued when the stream breaks may be lost; slices are
  // released when sent or lost. After a break it does nothing.
  virtual void Send(Message message) = 0;
  // Ends the stream cleanly once what is queued is sent; later sends do nothing. The client's
  // on_closed comes when the server has ended it too, with OK; the server's OnClosed comes at once.
  virtual void Close() = 0;
};

// Called on threads of the transport, one call at a time for a stream. Must not destroy its stream.
struct StreamCallbacks {
  std::function<void(Message)> on_message;
  // Last call, exactly once: OK when the peer closed cleanly.
  std::function<void(absl::Status)> on_closed;
};

// The client's side.
class Transport {
 public:
  virtual ~Transport() = default;
  // Opens the stream in the background: sends are queued meanwhile, failure comes as on_closed.
  virtual std::unique_ptr<Stream> Connect(const std::string& address,
                                          StreamCallbacks callbacks) = 0;
  // One unary call beside the streams: serialized request in, serialized reply out. `method` is the
  // full name, "/sluice.Pserver/SaveShards".
  virtual absl::StatusOr<std::string> Call(const std::string& address, const std::string& method,
                                           const std::string& request, absl::Duration timeout) = 0;
};

// The server's side: makes the handler of each new stream. The handler keeps `stream` (shared: late
// answers may outlive the stream; sends after its end do nothing). Calls to a handler come one at a
// time, OnClosed last and exactly once; it is destroyed after that. A factory that answers null
// refuses the stream.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  virtual void OnMessage(Message message) = 0;
  virtual void OnClosed() = 0;
};
using StreamHandlerFactory =
    std::function<std::unique_ptr<StreamHandler>(std::shared_ptr<Stream> stream, std::string peer)>;

}  // namespace sluice
