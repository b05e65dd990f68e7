// The connections of a worker to the other members of its cluster, in a forked child.
//
// A child has copies of all descriptors of the process. If it kept these connections, they would
// stay open when the worker dies, and nobody would see their end. Other descriptors, such as those
// of the program, stay as they are.
//
// Thread safety: safe from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/transport/transport.h"

namespace sluice {

// A transport that passes everything on, and notes the addresses.
class ClusterSockets : public Transport {
 public:
  // `transport` outlives this.
  explicit ClusterSockets(Transport* transport) : transport_(*transport) {}

  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) override {
    Note(to.address);
    return transport_.Connect(to, std::move(callbacks));
  }
  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override {
    Note(to.address);
    return transport_.Call(to, method, request, timeout);
  }

  // The worker connects to this member, host:port.
  void Note(const std::string& address);
  // Closes this process's connections to addresses that were noted, and streams in shared memory.
  void CloseInForkedChild() const;

 private:
  // Whether the descriptor is such a connection.
  bool IsOfCluster(int fd) const;
  bool IsNoted(uint64_t member) const;

  Transport& transport_;
  // Without a lock: in a child, a thread that is not there might hold it. 0: free. What has no room
  // stays open in children. Relaxed: an entry is a number, which refers to nothing.
  std::array<std::atomic<uint64_t>, 1024> members_ = {};
};

}  // namespace sluice
