// The sending half of a stream through shared memory: a queue of frames before the ring.
//
// Pump copies what is queued into the ring as long as there is room. One thread at a time writes to
// the ring; others leave their messages in the queue for it.
//
// Thread safety: safe from any thread.
//
// Memory: slices are released once they are copied into the ring, or lost. A finished sender gives
// the link back, even if others still hold it.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/slice.h"
#include "common/shm_transport/byte_ring.h"
#include "common/shm_transport/shm_link.h"
#include "common/transport/byte_budget.h"

namespace sluice {

class ShmSender {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `queued` counts the bytes that wait here, and outlives the sender.
  ShmSender(std::shared_ptr<const ShmLink> link, bool to_server, size_t max_queued_bytes,
            ByteBudget* queued);

  enum class Queued {
    kYes,
    kBeyondBudget,  // yes, but more bytes wait at all senders than their budget allows
    kTooMuch,       // no: more than max_queued_bytes would wait here
    kClosed,        // no: sends do nothing any more
  };
  // Pump must follow if the message is queued.
  Queued Queue(Message message);
  // Queues the end frame, after which nothing is queued. Pump must follow. False: it was closed
  // before.
  bool Close(Time now);
  // Drops what is queued. Nothing is sent any more.
  void Stop();
  // As Stop, and gives the link back once no thread writes.
  void Finish();

  struct Pumped {
    bool progress = false;     // something was written
    bool impossible = false;   // the peer's read position: the stream must end
    bool end_written = false;  // the end frame, now
  };
  // Writes to the ring until the queue is empty or the ring is full.
  Pumped Pump();

  struct State {
    // Pump when the peer has read: the ring was full, or a thread writes, which may find it full.
    // Only Pump makes that thread look once more, if the peer has read after its last look.
    bool blocked = false;
    bool end_written = false;  // the end frame, at some time
  };
  State state();
  bool closed();                       // by Close, Stop or Finish
  std::optional<Time> closed_since();  // when Close was called
  size_t queued_bytes();

  // `hook` runs, without the lock, when a thread has found the ring full and not yet said so. Set
  // it before the first Pump.
  void SetFoundFullForTest(std::function<void()> hook) { found_full_for_test_ = std::move(hook); }

 private:
  struct Outgoing {
    FrameHead head;
    Message message;
    size_t head_done = 0;
    size_t slice = 0, offset = 0;  // of the next byte of the message
  };
  enum class Written { kAll, kNoRoom, kImpossible };

  Written WriteSome(Outgoing* out, bool* progress);
  // Takes what is queued, and what is under way unless a thread writes it now. The caller releases
  // the result without the lock, because the owners of slices may run any code.
  std::deque<Outgoing> TakeQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Uncount(const Outgoing& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(PacketKind kind);

  const size_t max_queued_bytes_;
  ByteBudget* const queued_;

  // Used by the thread that pumps. The link is given back once nobody does.
  std::shared_ptr<const ShmLink> link_;
  RingWriter writer_;
  std::optional<Outgoing> current_;  // being written; of whoever pumps, else guarded by mutex_
  std::function<void()> found_full_for_test_;

  Mutex mutex_;
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of queue_ and current_
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;     // a thread writes, without the lock
  bool pump_again_ ABSL_GUARDED_BY(mutex_) = false;  // another thread wanted to pump meanwhile
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;     // the ring was full
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_written_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Time> closed_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
