// Decides which streams a server gives up when too many are open.
//
// A stream that has not sent its first message is silent: its opener has proven nothing about
// itself but its certificate, which many processes may share. When one peer has too many silent
// streams, or too many in all, or all peers together have too many streams, the oldest silent one
// is given up, on the connection that has the most. So a flood gives up its own streams, and a
// worker that sends its hello at once gets in, even when it shares certificate and host with the
// flood.
//
// Invariants: with the streams that it has given up left out, at most `max_streams` are open, at
// most `max_per_peer` of each peer, and at most `max_silent_per_peer` of each peer are silent.
//
// Cost: an Open beyond a limit looks at all silent streams.
//
// Thread safety: none; the owner locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace sluice {

class StreamAdmission {
 public:
  using Id = const void*;
  struct Opener {
    std::string peer;        // role and name of the certificate, and the host
    std::string connection;  // host:port of the other end
  };

  StreamAdmission(size_t max_streams, size_t max_silent_per_peer, size_t max_per_peer = SIZE_MAX)
      : max_streams_(max_streams),
        max_silent_per_peer_(max_silent_per_peer),
        max_per_peer_(max_per_peer) {}

  // Returns the streams to give up, of which `id` itself may be one: then there is no room for it.
  // They count as closed from now on.
  std::vector<Id> Open(Id id, Opener opener);
  // The stream's first message has come.
  void Spoke(Id id);
  // Streams that are not open are ignored.
  void Closed(Id id);

  bool IsOpen(Id id) const { return open_.count(id) > 0; }
  size_t open() const { return open_.size(); }
  size_t silent() const { return silent_.size(); }

 private:
  using Number = uint64_t;  // of a stream, in the order in which they were opened
  struct Opened {
    Number number;
    std::string peer;
  };
  struct Silent {
    Id id;
    Opener opener;
  };

  // `peer`: null for any. Null when no such stream is silent.
  Id OldestOfTheBusiest(const std::string* peer) const;

  const size_t max_streams_, max_silent_per_peer_, max_per_peer_;
  Number next_ = 0;
  std::unordered_map<Id, Opened> open_;
  std::unordered_map<std::string, size_t> of_peer_;  // number of open streams
  std::map<Number, Silent> silent_;
};

}  // namespace sluice
