// Decides which streams a server gives up when too many are open.
//
// A stream that has not sent its first message is silent: its opener has proven nothing about
// itself but its certificate, which many processes may share. When one peer has too many silent
// streams, or too many in all, the oldest silent one is given up, on the connection that has the
// most. So a flood gives up its own streams, and a worker that sends its hello at once gets in,
// even when it shares certificate and host with the flood.
//
// When all peers together have too many streams, one of these is given up:
// 1. If more than a few streams are silent (a quarter of what one peer may have): the oldest silent
//    one, on the connection that has the most.
// 2. If one certificate has spoken on more than a quarter of all places: the newest of these
//    streams, of the host that has the most. So nobody takes all places with one certificate,
//    whatever the number of addresses, and other hosts keep what they have. A newcomer with the
//    same certificate is refused instead: honest processes that are too many do not end each
//    other's streams, and a job that trains goes on.
// 3. Otherwise the oldest silent one as in 1, which may be the newcomer.
//
// Invariants: with the streams that it has given up left out, at most `max_streams` are open, at
// most `max_per_peer` of each peer, and at most `max_silent_per_peer` of each peer are silent.
//
// Cost: each call takes a time that grows with the logarithm of the number of streams.
//
// Thread safety: none; the owner locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/transport/stream_groups.h"

namespace sluice {

class StreamAdmission {
 public:
  using Id = StreamGroups::Id;
  struct Opener {
    std::string peer;              // role and name of the certificate, and the host
    std::string connection;        // host:port of the other end
    std::string certificate = "";  // role and name; "": none, so the opener may be anybody
  };

  StreamAdmission(size_t max_streams, size_t max_silent_per_peer, size_t max_per_peer = SIZE_MAX)
      : max_streams_(max_streams),
        max_silent_per_peer_(max_silent_per_peer),
        max_per_peer_(max_per_peer) {}

  // Returns the streams to give up, of which `id` itself may be one: then there is no room for it.
  // They count as closed from now on. Changes nothing if it throws for want of memory.
  std::vector<Id> Open(Id id, const Opener& opener);
  // The stream's first message has come. Changes nothing if it throws.
  void Spoke(Id id);
  // Streams that are not open are ignored.
  void Closed(Id id) noexcept;

  bool IsOpen(Id id) const { return open_.count(id) > 0; }
  bool full() const { return open_.size() >= max_streams_; }
  // Whether its peer has all that a peer may have.
  bool PeerIsFull(const std::string& peer) const;
  bool HasMoreThanAQuarter(const std::string& certificate) const {
    return spoken_.size_of(certificate) > max_streams_ / 4;
  }
  // Whether an open stream is of this certificate.
  bool IsOf(Id id, const std::string& certificate) const {
    const auto it = open_.find(id);
    return it != open_.end() && it->second.opener.certificate == certificate;
  }
  size_t open() const { return open_.size(); }
  size_t silent() const { return silent_.size(); }

 private:
  struct Stream {
    StreamGroups::Number number;
    Opener opener;
    bool spoke = false;
  };
  struct Peer {
    size_t open = 0;
    StreamGroups silent;  // by connection
  };

  void Add(Id id, const Opener& opener);
  // Forgets a stream that has spoken with its certificate.
  void RemoveSpoken(const Stream& stream) noexcept;
  // The stream that makes room for others when there are too many in all.
  Id Dispensable(Id newcomer) const;

  const size_t max_streams_, max_silent_per_peer_, max_per_peer_;
  StreamGroups::Number next_ = 0;
  std::unordered_map<Id, Stream> open_;
  std::unordered_map<std::string, Peer> peers_;  // with an open stream
  StreamGroups silent_;                          // by connection
  // The streams that have spoken, by certificate; and for each certificate, by peer.
  StreamGroups spoken_;
  std::unordered_map<std::string, StreamGroups> spoken_of_;
};

}  // namespace sluice
