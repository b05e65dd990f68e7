// The process at the other end of a stream through shared memory, as its local socket shows it.
//
// A peer that dies is noticed by the end of its socket, and one that is stopped by pings, which it
// does not answer.
//
// Thread safety: used by the stream's thread alone.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

class ShmPeer {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Role { kServer, kClient };  // only a server may end the stream with a status

  // `socket` stays open as long as this is used. A peer that is silent for keepalive_time gets a
  // ping, and has keepalive_timeout for its answer.
  ShmPeer(int socket, Role role, absl::Duration keepalive_time, absl::Duration keepalive_timeout,
          Time now)
      : socket_(socket),
        role_(role),
        keepalive_time_(keepalive_time),
        keepalive_timeout_(keepalive_timeout),
        heard_(now) {}

  struct Heard {
    bool any = false;  // there were packets, or the peer is gone
    // Not OK: the stream ends, because the server says so, or because of a packet that no peer
    // sends.
    absl::Status end;
  };
  // Reads the packets that wait, but not all of a flood.
  Heard Read(Time now);
  // Pings a silent peer. UNAVAILABLE: it has not answered in time.
  absl::Status CheckAlive(Time now);
  // Something else has shown that the peer lives.
  void SetHeard(Time now) { heard_ = now; }
  // The peer's process has ended, or has dropped the stream.
  bool gone() const { return gone_; }

 private:
  absl::Status Take(const char* packet, size_t bytes);

  const int socket_;
  const Role role_;
  const absl::Duration keepalive_time_, keepalive_timeout_;
  bool gone_ = false;
  bool waits_for_pong_ = false;
  Time heard_, pinged_;
};

}  // namespace sluice
