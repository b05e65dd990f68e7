// A Transport in memory, for tests.
//
// Addresses are names, and messages are copied as over a network. Each stream has two delivery
// threads, one for the server's handler and one for the client's callbacks.
//
// Thread safety: safe from any thread. Unbind and the destructor must not run in a handler.
//
// Memory: Send copies the message and cuts the copy into slices of `slice_bytes`, so that values
// straddle slices.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/transport/transport.h"

namespace sluice {

class InProcessTransport : public Transport {
 public:
  using UnaryHandler = std::function<absl::StatusOr<std::string>(const std::string& request)>;

  explicit InProcessTransport(size_t slice_bytes = 8191);
  // Unbinds every address. Client streams may outlive the transport, but are broken.
  ~InProcessTransport() override;

  // Lets handlers from the factory answer streams to `address` from now on.
  // REQUIRES: `address` is not bound.
  void Bind(const std::string& address, StreamHandlerFactory factory);
  // Registers a handler, which Call() runs on the caller's thread.
  void RegisterUnary(const std::string& address, const std::string& method, UnaryHandler handler);
  // Acts as if the server at `address` died: its streams break with UNAVAILABLE, and queued
  // messages are lost. Returns when every handler has had its OnClosed and is destroyed.
  void Unbind(const std::string& address);

  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) override;
  // Ignores the timeout, because the handler runs on this thread.
  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override;

 private:
  class Connection;
  class ClientEnd;
  class ServerEnd;
  struct Server {
    StreamHandlerFactory factory;
    std::map<std::string, UnaryHandler> unary;
    std::vector<std::shared_ptr<Connection>> connections;
  };

  const size_t slice_bytes_;
  Mutex mutex_;
  std::map<std::string, Server> servers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
