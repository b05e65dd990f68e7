// The client's half of the data plane over gRPC: raw byte streams that send values without a copy.
//
// A transport keeps one channel, and so one TCP connection, for each pserver as long as it
// lives. With TLS, it checks that the server is the pserver of that rank.
// Keepalive on each connection ends the streams of a dead peer within keepalive_time +
// keepalive_timeout. Each stream is pinned to one thread, on which its callbacks run: a callback
// that blocks stops the other streams of that thread.
//
// Lifetime: streams must be destroyed before the transport.
//
// Thread safety: safe from any thread.
//
// Memory: see grpc_convert.h.
#pragma once

#include <memory>
#include <string>

#include "common/security/grpc_credentials.h"
#include "common/transport/transport.h"

namespace sluice {

// Prepares a process for the data plane. main() calls it before any thread and gRPC start.
//
// It makes malloc keep freed memory, because fresh pages for each message cost more than its copy.
// All threads share one arena: separate arenas would each keep the most that ever passed through
// them. It also makes each gRPC thread poll its own connections (GRPC_POLL_STRATEGY, unless that is
// set). By default one thread at a time polls for all and wakes the others, which takes as long as
// a small answer.
void PrepareDataPlane();
// The names and values of the malloc options that PrepareDataPlane sets, in one line.
std::string MallocSettings();

class GrpcTransport : public Transport {
 public:
  struct Options {
    int threads = 2;
    // A longer message, in either direction, ends its stream with RESOURCE_EXHAUSTED.
    size_t max_message_bytes = size_t{256} << 20;
    // A stream with more bytes queued ends with RESOURCE_EXHAUSTED: its peer does not read.
    size_t max_queued_bytes = size_t{1} << 30;
    // The time for one attempt to connect. A stream fails with the first attempt that fails.
    absl::Duration connect_timeout = absl::Seconds(10);
    absl::Duration keepalive_time = absl::Seconds(10);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    std::string method = kExchangeMethod;  // of the streams
    GrpcCredentials credentials;           // the servers must be pservers
  };

  GrpcTransport() : GrpcTransport(Options()) {}
  explicit GrpcTransport(Options options);
  ~GrpcTransport() override;

  // Opens a stream of Options.method. It ends with UNAVAILABLE when nobody answers, the peer dies,
  // or the peer drops the stream.
  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) override;
  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override;

  // The bytes of all streams that Send has accepted and that are not yet sent or lost.
  size_t queued_bytes() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
