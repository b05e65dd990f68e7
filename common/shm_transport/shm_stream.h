// One end of a stream through shared memory.
//
// Sending: Send copies a message into the ring at once if there is room and nothing else waits;
// otherwise it queues the message, and the stream's thread goes on. One thread at a time writes to
// the ring; others leave their messages in the queue for it.
// Receiving: the stream's thread copies frames into memory of this process, because the peer can
// write the shared memory at any time, and hands them to on_message.
//
// The end: on_closed runs when the peer's end frame has come, when the stream fails, and at a
// server also when its own end frame is written. A client is finished then; a server is once its
// own end frame is written, or when the stream fails. A finished stream gives memory and socket
// back, even if others still hold it.
//
// A peer that dies is noticed by the end of its socket; what it wrote before is still read. One
// that is stopped is noticed by pings.
//
// Thread safety: Send, Close and the methods of ServedStream are safe from any thread. The rest
// belongs to the stream's ShmThread.
//
// Memory: slices are released once they are copied into the ring, or lost.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/shm_transport/byte_ring.h"
#include "common/shm_transport/shm_link.h"
#include "common/transport/byte_budget.h"
#include "common/transport/served_streams.h"
#include "common/transport/transport.h"

namespace sluice {

class ShmThread;

class ShmStream : public Stream,
                  public ServedStream,
                  public std::enable_shared_from_this<ShmStream> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // What all streams of a transport or server share.
  struct Host {
    size_t max_message_bytes = 0;  // a longer one ends its stream with RESOURCE_EXHAUSTED
    // The same for the first message that a server gets.
    size_t max_first_message_bytes = SIZE_MAX;
    size_t max_queued_bytes = 0;  // of one stream
    // The table that a server's streams are in. Null at a client, whose streams have no bound
    // together.
    std::shared_ptr<ServedStreams> served;
    ByteBudget* queued() { return served != nullptr ? served->queued() : &queued_to_servers; }
    ByteBudget queued_to_servers;
    absl::Duration keepalive_time, keepalive_timeout;
    // At a server. A stream without a message for so long after it was opened is ended, and so is
    // one whose client has not read all for so long after it was closed. Zero: no bound.
    absl::Duration first_message_timeout = absl::ZeroDuration();
    absl::Duration close_timeout = absl::ZeroDuration();
  };
  // Called on the stream's thread, one at a time.
  struct Events {
    std::function<void(Message)> on_message;
    std::function<void(absl::Status)> on_closed;  // exactly once; no message follows
    std::function<void()> on_finished;            // the last one; may be empty
  };
  enum class Side { kClient, kServer };

  ShmStream(Side side, ShmLink link, std::shared_ptr<Host> host, std::shared_ptr<ShmThread> thread);

  // Must run before the stream is given to its thread.
  void SetEvents(Events events) { events_ = std::move(events); }

  void Send(Message message) override;
  void Close() override;
  // A server also tells the status to the client.
  void Abort(const absl::Status& status) override;
  void Cut(const absl::Status& status) override { Abort(status); }
  std::shared_ptr<ServedStream> Hold() override { return weak_from_this().lock(); }
  bool ending() override;
  size_t queued_bytes() override;
  size_t incoming_bytes() override;
  bool ClaimCut() override;

  // For the handshake, before the stream is given to its thread.
  UnixConnection* socket() { return &link_->socket; }

  // For the stream's thread.
  enum class Outcome { kIdle, kProgress, kDone };
  int fd() const { return link_->socket.fd(); }  // until Finish
  // Does what there is to do now, a part of it if it is much. kDone: Finish must follow.
  Outcome Run(Time now);
  // Announces that nobody looks at the rings any more until the socket is readable. False: there is
  // something to do after all.
  bool Sleep();
  // Takes the announcement back: the thread looks at the rings again.
  void WakeUp() { reader_.CancelSleep(); }
  // Reads the packets that wait. True: there were some, or the peer is gone, so Run must follow.
  bool ReadSocket(Time now);
  // Pings a silent peer, and ends the stream of one that stays silent. True: as ReadSocket.
  bool CheckPeer(Time now);
  // Gives everything back. Nothing but what is safe from any thread may follow.
  void Finish();

 private:
  struct Outgoing {
    FrameHead head;
    Message message;
    size_t head_done = 0;
    size_t slice = 0, offset = 0;  // of the next byte of the message
  };
  enum class Written { kAll, kNoRoom, kImpossible };

  // Writes to the ring until the queue is empty or the ring is full. True: it wrote something.
  bool Pump();
  Written WriteSome(Outgoing* out, bool* progress);
  // Takes what is queued, and what is under way unless a thread writes it now. The caller releases
  // the result without the lock, because the owners of slices may run any code.
  std::deque<Outgoing> TakeQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Uncount(const Outgoing& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ReadRing();
  // Reads the head of a frame, or some of its bytes. 0: there is too little to read.
  size_t ReadSome(size_t available);
  void BeginFrame();
  // False: there is no memory for it now. Others are cut, so there soon is.
  bool BeginChunk();
  void EndFrame();
  void ReleaseIncoming();
  void EndReading(const absl::Status& status);
  void PublishRead();
  void PeerIsGone();
  void Tell(PacketKind kind, const std::string& rest = "");

  const Side side_;
  const std::shared_ptr<Host> host_;
  const std::shared_ptr<ShmThread> thread_;
  Events events_;  // of the stream's thread

  // Used by the stream's thread and by whoever pumps. Given back once neither does.
  std::optional<ShmLink> link_;
  RingWriter writer_;  // of whoever pumps
  RingReader reader_;  // of the stream's thread

  // Of the stream's thread: the frame being read, and what it knows about the peer.
  FrameHead head_;
  bool in_frame_ = false;
  uint64_t frame_left_ = 0;  // bytes of the frame that are not read yet
  Message incoming_;         // the full chunks of the frame
  std::shared_ptr<uint8_t[]> chunk_;
  size_t chunk_size_ = 0, chunk_filled_ = 0;
  // The memory of the frame's chunks, which counts against the bound of all streams. Relaxed: other
  // threads only compare the figures of streams.
  std::atomic<size_t> incoming_bytes_{0};
  bool read_unpublished_ = false;
  bool reading_over_ = false;
  bool peer_gone_ = false;
  size_t left_by_peer_ = 0;  // bytes to read that the peer had written before it went
  bool heard_message_ = false;
  bool waits_for_pong_ = false;
  Time opened_, heard_, pinged_;

  std::optional<Outgoing> current_;  // being written; of whoever pumps, else guarded by mutex_
  Mutex mutex_;
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of queue_ and current_
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;     // a thread writes, without the lock
  bool pump_again_ ABSL_GUARDED_BY(mutex_) = false;  // another thread wanted to pump meanwhile
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;     // the ring was full
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;     // sends do nothing
  bool end_written_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;    // ClaimCut has returned true
  Time closed_at_ ABSL_GUARDED_BY(mutex_);      // when Close was called
  absl::Status abort_ ABSL_GUARDED_BY(mutex_);  // not OK: why the stream ends at once
};

}  // namespace sluice
