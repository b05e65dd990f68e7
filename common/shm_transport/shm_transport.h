// The client's half of the data plane: streams through shared memory to servers of this host.
//
// Connect first asks the server over `control` for an invitation (shm_handshake.h), on a thread of
// its own. Where shared memory cannot be used, the stream goes over `fallback`, and on_choice says
// why, once for each address and status code. A server that cannot be reached ends the stream with
// UNAVAILABLE in both cases, and so does everything that would end it over gRPC (grpc_transport.h).
//
// Without a fallback, a refusal that may pass (ABORTED, PERMISSION_DENIED, RESOURCE_EXHAUSTED) ends
// the stream with UNAVAILABLE, so that its owner tries again. Any other refusal, and one that has
// lasted for `refusals_may_last`, ends it with UNIMPLEMENTED and the reason.
//
// Lifetime: streams must be destroyed before the transport.
//
// Thread safety: safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/transport/transport.h"

namespace sluice {

class ShmTransport : public Transport {
 public:
  struct Options {
    Transport* control = nullptr;   // for calls; required; outlives this transport
    Transport* fallback = nullptr;  // may be null; outlives this transport
    // Says how an address is reached: OK for shared memory, else why not. Once for each address and
    // status code, in any thread. May be empty.
    std::function<void(const std::string& address, const absl::Status& why_not)> on_choice;
    int threads = 2;
    size_t max_message_bytes = size_t{256} << 20;
    size_t max_queued_bytes = size_t{1} << 30;
    // The time for the invitation, and then for the answer at the local socket.
    absl::Duration connect_timeout = absl::Seconds(10);
    absl::Duration refusals_may_last = absl::Seconds(60);
    absl::Duration keepalive_time = absl::Seconds(10);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    std::string boot_id;  // empty: that of this host
  };

  explicit ShmTransport(Options options);
  ~ShmTransport() override;

  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) override;
  // Goes to `control`.
  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override;

  // The bytes of the streams through shared memory that Send has accepted and that are not yet in a
  // ring or lost. Those of streams that are not yet open do not count.
  size_t queued_bytes() const;
  // The number of open streams through shared memory.
  int open_streams() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
