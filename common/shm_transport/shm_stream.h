// One end of a stream through shared memory: a sender (shm_sender.h), a receiver (shm_receiver.h)
// and the peer's process (shm_peer.h), and when the stream ends.
//
// Sending: Send copies a message into the ring at once if there is room and nothing else waits;
// otherwise the stream's thread goes on.
// Receiving: the stream's thread hands messages to on_lent while they lie in the ring, or copies to
// on_message.
//
// The end: on_closed runs when the peer's end frame has come, when the stream fails, and at a
// server also when its own end frame is written. A client is finished then; a server is once its
// own end frame is written, or when the stream fails. A finished stream gives memory and socket
// back, even if others still hold it. Bytes that a peer wrote before it died are still delivered.
//
// Thread safety: Send, Close and the methods of ServedStream are safe from any thread. The rest
// belongs to the stream's ShmThread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/shm_transport/shm_link.h"
#include "common/shm_transport/shm_peer.h"
#include "common/shm_transport/shm_receiver.h"
#include "common/shm_transport/shm_sender.h"
#include "common/transport/byte_budget.h"
#include "common/transport/served_streams.h"
#include "common/transport/transport.h"

namespace sluice {

class ShmThread;

class ShmStream : public Stream,
                  public ServedStream,
                  public std::enable_shared_from_this<ShmStream>,
                  private ShmReceiver::Listener {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Limits and counters that all streams of a transport or server share.
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
    // Messages of at most half of the ring, in place. May be empty: on_message gets a copy.
    std::function<void(const LentMessage&)> on_lent;
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
  bool ending() override { return sender_.closed(); }
  size_t queued_bytes() override { return CountsBytes() ? sender_.queued_bytes() : 0; }
  size_t incoming_bytes() override { return CountsBytes() ? receiver_.incoming_bytes() : 0; }
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
  void WakeUp() { receiver_.WakeUp(); }
  // Reads the packets that wait. True: there were some, or the peer is gone, so Run must follow.
  bool ReadSocket(Time now);
  // Pings a silent peer, and ends the stream of one that stays silent. True: as ReadSocket.
  bool CheckPeer(Time now);
  // Gives everything back. Nothing but what is safe from any thread may follow.
  void Finish();

 private:
  // ShmReceiver::Listener.
  void OnMessage(Message message) override;
  void OnLent(const LentMessage& message) override;
  void OnEnd() override;
  void OnFault(const absl::Status& fault) override;
  bool failed() const override { return aborted_.load(std::memory_order_acquire); }

  ShmReceiver::Bounds BoundsOfReceiver() const;
  // A whole message is there. False: nobody wants it any more.
  bool TakesMessage();
  bool Pump();
  // The bytes that it holds count: neither Abort nor ClaimCut has been called.
  bool CountsBytes();
  void CallClosed(const absl::Status& status);

  const Side side_;
  const std::shared_ptr<Host> host_;
  const std::shared_ptr<ShmThread> thread_;
  const Time opened_;
  std::shared_ptr<ShmLink> link_;  // until Finish; the sender may hold it longer

  // Used by the stream's thread alone.
  ShmReceiver receiver_;
  ShmPeer peer_;
  Events events_;
  bool closed_called_ = false;

  std::atomic<bool> aborted_{false};  // abort_ is set: release, acquire
  Mutex mutex_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;    // ClaimCut has returned true
  absl::Status abort_ ABSL_GUARDED_BY(mutex_);  // not OK: why the stream ends at once

  ShmSender sender_;  // apart from the thread's fields: its cache lines are those of other threads
};

}  // namespace sluice
