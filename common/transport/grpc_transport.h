// The client's half of the data plane over gRPC: raw byte streams, values never copied on the way
// out.
//
// One channel and one TCP connection per address, kept for the transport's life; keepalive on each,
// so that a dead peer ends its streams within keepalive_time + keepalive_timeout. Each stream is
// pinned to one thread, on which its callbacks run: a callback that blocks stops the other streams
// of that thread. Thread safety: all methods may be called from any thread. Streams must be
// destroyed before the transport. Memory: see grpc_convert.h.
#pragma once

#include <memory>
#include <string>

#include "common/transport/transport.h"

namespace sluice {

// For main() of every process on the data plane, before its threads and anything of gRPC start.
// Makes malloc keep freed memory: the fresh pages of each message cost more than its copy; in one
// arena for all threads, since each would keep the most that passed through it. Makes each thread
// of gRPC poll its own connections (GRPC_POLL_STRATEGY, unless that is set): by default one thread
// at a time polls for all and wakes the others, which takes as long as a small answer.
void PrepareDataPlane();
// What it asks of malloc, in a line: names and values.
std::string MallocSettings();

class GrpcTransport : public Transport {
 public:
  struct Options {
    int threads = 2;
    // A longer message, either way, ends its stream with RESOURCE_EXHAUSTED.
    size_t max_message_bytes = size_t{256} << 20;
    // More than this queued on one stream ends it with RESOURCE_EXHAUSTED: the peer does not read.
    size_t max_queued_bytes = size_t{1} << 30;
    // Of one attempt; a stream fails with the first attempt that does.
    absl::Duration connect_timeout = absl::Seconds(10);
    absl::Duration keepalive_time = absl::Seconds(10);
    absl::Duration keepalive_timeout = absl::Seconds(10);
  };

  GrpcTransport() : GrpcTransport(Options()) {}
  explicit GrpcTransport(Options options);
  ~GrpcTransport() override;

  // A stream of kExchangeMethod. UNAVAILABLE: nobody answered, the peer died or dropped the stream.
  std::unique_ptr<Stream> Connect(const std::string& address, StreamCallbacks callbacks) override;
  absl::StatusOr<std::string> Call(const std::string& address, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override;

  // Bytes accepted by Send and not yet sent or lost, over all streams.
  size_t queued_bytes() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
