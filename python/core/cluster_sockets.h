// The connections of a worker to the other members of its cluster, in a forked child.
//
// A child has copies of all descriptors of the process. If it kept these connections, they would
// stay open when the worker dies, and nobody would see their end. Other descriptors, such as those
// of the program, stay as they are.
//
// Thread safety: safe from any thread.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
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
    NoteOnce(to.address);
    return transport_.Call(to, method, request, timeout);
  }

  // The worker connects to this member, host:port. Notes all addresses of a name.
  void Note(const std::string& address);
  // Closes this process's connections to addresses that were noted, and streams in shared memory.
  void CloseInForkedChild() const;

 private:
  struct Member {
    bool operator==(const Member& other) const { return ip == other.ip && port == other.port; }
    std::array<uint8_t, 16> ip = {};  // IPv4 as ::ffff:a.b.c.d
    uint16_t port = 0;
  };
  // Nothing unless the address is one of IP.
  static std::optional<Member> MemberAt(const sockaddr& address);

  // A call is made often, and a name would be resolved each time.
  void NoteOnce(const std::string& address);
  // Whether the descriptor is such a connection.
  bool IsOfCluster(int fd) const;
  bool IsNoted(const Member& member) const;

  Transport& transport_;
  absl::Mutex mutex_;  // not for a child, where a thread that is not there might hold it
  absl::flat_hash_set<std::string> called_ ABSL_GUARDED_BY(mutex_);
  // The first `noted_` are complete. Added under the mutex. What has no room stays open in
  // children.
  std::array<Member, 1024> members_;
  std::atomic<size_t> noted_ = 0;
};

}  // namespace sluice
