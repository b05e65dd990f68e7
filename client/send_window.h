// Keeps the frames that are not acknowledged yet, so that they can be sent again.
//
// Delivery decides which parts to send; the window holds their data. The latest frame may be open:
// some of its parts are sent early, and the rest is added when the frame is closed.
//
// Invariants:
// - Frames have consecutive sequences, from released() + 1 to last().
// - Only the latest frame may be open.
// - An open frame has at least one unsent part for every pserver, because a pserver counts a frame
//   with the request that completes it.
//
// Thread safety: guarded by the owner's lock.
//
// Memory: released frames go to the caller. Their values may be large, so the caller destroys them
// without the lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "client/delivery.h"
#include "client/push_frame.h"
#include "common/wire/train_position.h"
#include "proto/pserver.pb.h"

namespace sluice {

// Objects to destroy once the owner's lock is released.
using Garbage = std::vector<std::shared_ptr<const void>>;

class SendWindow {
 public:
  // `index` outlives the window.
  explicit SendWindow(const ShardIndex* index);

  // True when the latest frame is open.
  bool open() const { return !frames_.empty() && frames_.back()->open; }
  size_t size() const { return frames_.size(); }

  // Adds a complete frame or the rest of the open one; all its parts may then be sent. Sequence 0
  // stands for the next one. FAILED_PRECONDITION when the sequence does not follow the last;
  // INVALID_ARGUMENT when the frame already has one of the parts.
  absl::Status Add(PushFrame frame, const std::vector<uint64_t>& pulled_others);
  // Adds the parts of one dense table to the open frame, or opens the next one with them. They may
  // be sent, except the last unsent part of each pserver.
  // Errors: see Add.
  absl::Status AddEarly(uint32_t table, PushFrame frame,
                        const std::vector<uint64_t>& pulled_others);

  // These decide what to send and take the replies; the rules are in delivery.h.
  const Delivery& delivery() const { return delivery_; }
  std::optional<Delivery::Send> Next(uint32_t link) { return delivery_.Next(link); }
  void OnOpen(uint32_t link) { delivery_.OnOpen(link); }
  void OnBroken(uint32_t link) { delivery_.OnBroken(link); }
  void OnRoute(const std::vector<uint32_t>& owners) { delivery_.OnRoute(owners); }
  void OnRefused(const Delivery::Send& send) { delivery_.OnRefused(send); }
  // Moves frames that every shard has acknowledged to `garbage`.
  absl::Status OnReply(const Delivery::Send& send, const std::vector<Delivery::Error>& errors,
                       Garbage* garbage);

  // REQUIRES: the window holds frame `sequence`.
  const PushFrame& frame(uint64_t sequence) const {
    return *frames_[sequence - frames_.front()->sequence];
  }
  // Adds what the shards at `link` have acknowledged.
  void AddAcknowledged(uint32_t link, Hello* hello) const;
  uint64_t last() const { return delivery_.last(); }
  uint64_t unacknowledged() const { return delivery_.last() - delivery_.released(); }

 private:
  absl::Status Open(PushFrame frame, const std::vector<uint64_t>& pulled_others);
  // Moves the parts of `more` in shards [begin, end) to the open frame.
  absl::Status Fill(uint32_t begin, uint32_t end, PushFrame* more);

  const ShardIndex* const index_;
  Delivery delivery_;
  std::deque<std::shared_ptr<PushFrame>> frames_;
  TrainPosition released_;  // of frame delivery_.released()
};

}  // namespace sluice
