// The sender's side of exactly-once, in-order delivery of push frames.
//
// A frame has one part for every shard, because a shard applies only sequence last + 1. For each
// shard, Delivery keeps the last sequence that was acknowledged. It also keeps the last one sent to
// the present owner on the present stream. After any failure it resends in order from the
// acknowledged one.
//
// Delivery is a pure state machine: it has no clock, no I/O and no payload.
//
// Invariants:
// - acknowledged(s) <= sent(s) <= last().
// - Between two rewinds, the parts of a shard are sent in ascending order.
// - sent(s) never exceeds the last part that was made ready.
// - An acknowledgement counts if the send went to the shard's present owner. Frames that only an
//   earlier owner has applied may be lost with it, so they are sent again. A shard that holds them
//   acknowledges them again.
// - A refusal counts only if the send is newer than the shard's last rewind, because the rewind has
//   already handled older sends.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/errors.pb.h"

namespace sluice {

class Delivery {
 public:
  // Frame `sequence`, restricted to `shards` (ascending), for one pserver. Each send has a larger
  // number than the one before.
  struct Send {
    uint64_t number = 0;
    uint64_t sequence = 0;
    std::vector<uint32_t> shards;
  };
  struct Error {
    uint32_t shard;
    PartStatus status;
    uint64_t last_sequence;
  };

  // owner[s] is the pserver of shard s. All streams are closed at first.
  explicit Delivery(std::vector<uint32_t> owner);

  // Adds a frame. The first may have any sequence (a sync worker replays its step); each later one
  // is last() + 1.
  // REQUIRES: sequence >= 1.
  void Add(uint64_t sequence);
  // Adds a frame whose parts may be sent only after MakeReady.
  // REQUIRES: all parts of the previous frame are ready.
  void AddOpen(uint64_t sequence);
  // Lets the part of frame last() for `shard` be sent. Repeating the call has no effect.
  void MakeReady(uint32_t shard) { shards_[shard].ready = last_; }
  bool ready(uint32_t shard) const { return shards_[shard].ready == last_; }

  // The stream to `pserver` accepts frames, or has broken. Everything not acknowledged there is
  // sent again.
  void OnOpen(uint32_t pserver);
  void OnBroken(uint32_t pserver);

  // Takes the reply to a send: every part that is not in `errors` is acknowledged. ABORTED when a
  // newer incarnation of the rank is active; INVALID_ARGUMENT when data was refused; DATA_LOSS when
  // a pserver has lost frames that it had acknowledged.
  absl::Status OnReply(const Send& send, const std::vector<Error>& errors);
  // The pserver refused the whole send because of its generation; its parts wait for a route.
  void OnRefused(const Send& send);

  // Takes a route that was fetched after the last refusal. It may be the same as before.
  void OnRoute(const std::vector<uint32_t>& owner);
  // True when parts wait for OnRoute.
  bool needs_route() const { return waiting_count_ > 0; }

  // Returns the next send to `pserver`. Call it until it returns nothing.
  std::optional<Send> Next(uint32_t pserver);

  uint64_t last() const { return last_; }
  uint32_t owner(uint32_t shard) const { return shards_[shard].owner; }
  uint64_t acknowledged(uint32_t shard) const { return shards_[shard].acknowledged; }
  uint64_t sent(uint32_t shard) const { return shards_[shard].sent; }
  // Frames up to this sequence are acknowledged by all their shards and may be released.
  uint64_t released() const { return released_; }
  // Returns a pserver that has not acknowledged frame released() + 1.
  // REQUIRES: released() < last().
  uint32_t SlowestPserver() const;

 private:
  struct Shard {
    uint32_t owner = 0;
    bool waiting = false;       // for a route
    uint64_t acknowledged = 0;  // by the owner at that time
    uint64_t sent = 0;          // to the present owner
    uint64_t ready = 0;         // may be sent
    uint64_t rewound_at = 0;    // refusals of sends with a smaller number are ignored
    uint64_t moved_at = 0;      // sends with a smaller number went to an earlier owner
  };
  void Rewind(Shard* shard);
  void Wait(Shard* shard);
  absl::Status OnError(const Send& send, const Error& error);
  void UpdateReleased();

  std::vector<Shard> shards_;
  std::vector<bool> open_;  // by pserver
  uint64_t next_number_ = 1;
  uint64_t last_ = 0, released_ = 0;
  uint32_t waiting_count_ = 0;
};

}  // namespace sluice
