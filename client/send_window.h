// The frames that are not acknowledged yet, kept so that they can be sent again.
//
// Delivery decides which parts to send; the window holds what they carry. The latest frame may be
// open: parts of it leave early, the rest comes when the frame is closed.
//
// Invariants: frames have consecutive sequences, from released() + 1 to last(); only the latest may
// be open; an open frame has at least one part left for every pserver, because a frame counts with
// the request that closes it there.
//
// Thread safety: guarded by the owner's lock.
//
// Memory: released frames go to the caller, who destroys them without the lock: their values may be
// large.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "client/delivery.h"
#include "client/push_frame.h"

namespace sluice {

// Objects to destroy once the owner's lock is released.
using Garbage = std::vector<std::shared_ptr<const void>>;

class SendWindow {
 public:
  // `index` outlives the window.
  explicit SendWindow(const ShardIndex* index);

  // The latest frame is open.
  bool open() const { return !frames_.empty() && frames_.back()->open; }
  size_t size() const { return frames_.size(); }

  // Adds a complete frame, or the rest of the open one, all of whose parts may leave. Sequence 0
  // stands for the next one. FAILED_PRECONDITION when the sequence does not follow the last;
  // INVALID_ARGUMENT when a part is there already.
  absl::Status Add(PushFrame frame, const std::vector<uint64_t>& pulled_others);
  // Adds the parts of one dense table to the open frame, or opens the next one with them. They may
  // leave, but for the last one of each pserver. Errors as of Add.
  absl::Status AddEarly(uint32_t table, PushFrame frame,
                        const std::vector<uint64_t>& pulled_others);

  // Says what to send and takes the answers; the rules are in delivery.h.
  const Delivery& delivery() const { return delivery_; }
  std::optional<Delivery::Send> Next(uint32_t link) { return delivery_.Next(link); }
  void OnOpen(uint32_t link) { delivery_.OnOpen(link); }
  void OnBroken(uint32_t link) { delivery_.OnBroken(link); }
  void OnRoute(const std::vector<uint32_t>& owners) { delivery_.OnRoute(owners); }
  void OnRefused(const Delivery::Send& send) { delivery_.OnRefused(send); }
  // Frames that every shard has acknowledged are moved to `garbage`.
  absl::Status OnReply(const Delivery::Send& send, const std::vector<Delivery::Error>& errors,
                       Garbage* garbage);

  // REQUIRES: `sequence` is not released.
  const PushFrame& frame(uint64_t sequence) const {
    return *frames_[sequence - frames_.front()->sequence];
  }
  uint64_t last() const { return delivery_.last(); }
  uint64_t unacknowledged() const { return delivery_.last() - delivery_.released(); }

 private:
  absl::Status Open(PushFrame frame, const std::vector<uint64_t>& pulled_others);
  // Moves the parts of `more` in shards [begin, end) to the open frame.
  absl::Status Fill(uint32_t begin, uint32_t end, PushFrame* more);

  const ShardIndex* const index_;
  Delivery delivery_;
  std::deque<std::shared_ptr<PushFrame>> frames_;
};

}  // namespace sluice
