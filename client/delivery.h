// The sender's side of exactly-once, in-order delivery of push frames, as a pure machine: events
// in, sends out.
//
// A frame has one part for every shard, because a shard applies only sequence last + 1. The machine
// keeps two numbers a shard: the last sequence acknowledged and the last sent to its present owner
// on the present stream; whatever happens, it goes back to the first and sends on from there in
// order.
//
// Invariants: acknowledged(s) <= sent(s) <= last(); parts of a shard leave in ascending order
// between two rewinds; sent(s) never exceeds what was made ready; a refusal counts only for sends
// made since the shard's last rewind (older ones have been answered by it), an acknowledgement
// always counts.
//
// Thread safety: none; no clock, no bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/errors.pb.h"

namespace sluice {

class Delivery {
 public:
  // Frame `sequence`, restricted to `shards` (ascending), for one pserver. Numbers grow with every
  // send.
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

  // owner[s]: the pserver of shard s. All streams are closed at first.
  explicit Delivery(std::vector<uint32_t> owner);

  // A new frame. The first may have any sequence (a sync worker replays its step); each later one
  // is last() + 1. REQUIRES: sequence >= 1.
  void Add(uint64_t sequence);
  // The same for a frame whose parts may leave only once they are made ready. REQUIRES: all parts
  // of the frame before it are.
  void AddOpen(uint64_t sequence);
  // The part of frame last() for `shard` may leave. Again: no effect.
  void MakeReady(uint32_t shard) { shards_[shard].ready = last_; }
  bool ready(uint32_t shard) const { return shards_[shard].ready == last_; }

  // The stream to `pserver` takes frames, or has broken: what is not acknowledged there is sent
  // again.
  void OnOpen(uint32_t pserver);
  void OnBroken(uint32_t pserver);

  // The answer to a send: every part of it that is not in `errors` is acknowledged. ABORTED when a
  // newer incarnation has spoken, INVALID_ARGUMENT when data was refused, DATA_LOSS when a pserver
  // has forgotten what it acknowledged.
  absl::Status OnReply(const Send& send, const std::vector<Error>& errors);
  // The pserver refused the whole send because of its generation: parts wait for a route.
  void OnRefused(const Send& send);

  // A route fetched after the last refusal; it may be the same as before.
  void OnRoute(const std::vector<uint32_t>& owner);
  // Parts wait for OnRoute.
  bool needs_route() const { return waiting_count_ > 0; }

  // What to send to `pserver` now; call until it has nothing.
  std::optional<Send> Next(uint32_t pserver);

  uint64_t last() const { return last_; }
  uint32_t owner(uint32_t shard) const { return shards_[shard].owner; }
  uint64_t acknowledged(uint32_t shard) const { return shards_[shard].acknowledged; }
  uint64_t sent(uint32_t shard) const { return shards_[shard].sent; }
  // Frames up to this sequence are acknowledged by all their shards and may be released.
  uint64_t released() const { return released_; }
  // A pserver that has not acknowledged frame released() + 1. REQUIRES: released() < last().
  uint32_t SlowestPserver() const;

 private:
  struct Shard {
    uint32_t owner = 0;
    bool waiting = false;       // for a route
    uint64_t acknowledged = 0;  // by the shard, wherever it was
    uint64_t sent = 0;          // to the present owner
    uint64_t ready = 0;         // may be sent
    uint64_t rewound_at = 0;    // refusals of sends with a smaller number are ignored
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
