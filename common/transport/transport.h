// The seam to the network for the data plane: streams of messages between a worker and a pserver.
//
// Implementations: gRPC (grpc_transport), and shared memory (common/shm_transport). Tests have two
// more (tests/common/transport): one in memory, and one that cuts streams at random.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/lent_message.h"
#include "common/base/slice.h"
#include "common/security/peer_identity.h"
#include "common/transport/pserver_address.h"

namespace sluice {

// The method of the data plane's streams (proto/pserver.proto).
inline constexpr char kExchangeMethod[] = "/sluice.Pserver/Exchange";
// The method of the streams between pservers (proto/replica.proto).
inline constexpr char kReplicaMethod[] = "/sluice.Replica/Exchange";

// One end of an open bidirectional stream. Messages arrive in order, or the stream breaks.
//
// Thread safety: safe from any thread.
class Stream {
 public:
  // A client's end cancels the stream: on_closed runs with CANCELLED unless it ran before, and no
  // callback runs once this returns. Do not hold a lock that a callback takes. A server's end may
  // be destroyed at any time: the stream itself lives until the handler's OnClosed.
  virtual ~Stream() = default;
  // Queues a message; never blocks. Slices are released once they are sent or lost. Messages that
  // are queued when the stream breaks may be lost. After a break Send does nothing.
  virtual void Send(Message message) = 0;
  // Ends the stream cleanly once the queued messages are sent; later sends do nothing. The server's
  // OnClosed comes at once. The client's on_closed comes, with OK, when the server has ended the
  // stream too.
  virtual void Close() = 0;
};

// The callbacks of a client's stream. They run on threads of the transport, one at a time for each
// stream, and must not destroy their stream.
struct StreamCallbacks {
  std::function<void(Message)> on_message;
  // The last call, made exactly once. OK when the peer closed the stream cleanly.
  std::function<void(absl::Status)> on_closed;
  // May be called instead of on_message, by a transport that need not copy a message to hand it on:
  // the bytes are there during the call alone (LentMessage). Empty: on_message gets all messages.
  std::function<void(const LentMessage&)> on_lent;
};

// The client's side of the seam.
class Transport {
 public:
  virtual ~Transport() = default;
  // Opens the stream in the background. Sends are queued meanwhile; a failure comes as on_closed.
  virtual std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) = 0;
  // Makes one unary call in addition to the streams: serialized request in, serialized reply out.
  // `method` is the full name, such as "/sluice.Pserver/SaveShards".
  virtual absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                           const std::string& request, absl::Duration timeout) = 0;
};

// The server's side of the seam: handles the messages of one stream. Calls to a handler come one at
// a time, OnClosed last and exactly once; the handler is destroyed after that.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  virtual void OnMessage(Message message) = 0;
  // A transport may call it instead of OnMessage; the bytes are there during the call alone.
  virtual void OnLent(const LentMessage& message) { OnMessage(message.Copy()); }
  virtual void OnClosed() = 0;
};
// Makes the handler of each new stream, which keeps `stream`. `peer` says who has opened it. The
// stream is shared because late answers may outlive it; sends after its end do nothing. A factory
// that returns null refuses the stream.
using StreamHandlerFactory = std::function<std::unique_ptr<StreamHandler>(
    std::shared_ptr<Stream> stream, const PeerIdentity& peer)>;

}  // namespace sluice
