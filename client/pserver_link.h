// One stream to one pserver: opened with Hello and opened again after a break.
//
// The link does not remember requests; the sender resends them after OnBroken and OnOpen.
//
// Thread safety: safe from any thread. ConnectIfDue and Shutdown belong to one thread, which holds
// no lock that the listener takes. The transport's threads call the listener, one call at a time
// and without a lock held.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/retry.h"
#include "common/transport/transport.h"
#include "common/wire/frame.h"

namespace sluice {

class PserverLink {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // The pserver accepted Hello: requests may be sent, unless Break was called in the meantime.
    virtual void OnOpen(uint32_t link) = 0;
    // The payload may be lent: nothing of it may be held after the call.
    virtual void OnReply(uint32_t link, DecodedReply reply) = 0;
    // Every request without a complete reply is lost. ConnectIfDue will reconnect.
    virtual void OnBroken(uint32_t link) = 0;
    // The pserver refused Hello for a reason that a retry alone does not fix, such as generation or
    // incarnation, or the transport cannot reach it at all (UNIMPLEMENTED). The link is broken.
    virtual void OnHelloRefused(uint32_t link, const ReplyHeader& header) = 0;
  };
  struct Options {
    Transport* transport = nullptr;  // both outlive the link
    Clock* clock = nullptr;
    Listener* listener = nullptr;
    uint32_t index = 0;  // passed to the listener
    PserverAddress to;
    Hello hello;
  };
  explicit PserverLink(Options options) : options_(std::move(options)) {}
  // REQUIRES: Shutdown was called, or the link never connected.
  ~PserverLink() = default;

  const std::string& address() const { return options_.to.address; }
  bool open() const;

  // Queues a message after the earlier ones; drops it when the link is not open. Cheap: may be
  // called under a lock.
  void Enqueue(Message message);
  // Sends the queued messages. If another thread is sending, it also sends this thread's messages.
  void Flush();

  // Closes the stream because of `why`, for example because the job is not open there. ConnectIfDue
  // opens it again later. The listener is not called.
  void Break(const absl::Status& why);
  // Opens the stream if it is down and its pause has passed. Returns when to call again;
  // InfiniteFuture means after the next OnBroken. `more`: what else the Hello says.
  absl::Time ConnectIfDue(uint64_t generation, const Hello& more = Hello());
  // Closes for good and waits for running callbacks.
  void Shutdown();

  // "connected", or "not connected: " and why.
  std::string State() const;

 private:
  enum class Phase { kDown, kHello, kOpen, kShutdown };
  // The transport's thread: `reply` is what a message holds. A lent payload is there during the
  // call alone.
  void OnMessage(uint64_t connection, absl::StatusOr<DecodedReply> reply);
  void OnHelloReply(uint64_t connection, const ReplyHeader& header);
  void OnClosed(uint64_t connection, const absl::Status& status);
  // False when `connection` is not the present one or is down already.
  bool GoDown(uint64_t connection, const absl::Status& why);
  void GoDownLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Connect(uint64_t connection, uint64_t generation, const Hello& more);

  const Options options_;
  mutable Mutex mu_;
  CondVar sender_left_;
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kDown;
  uint64_t connection_ ABSL_GUARDED_BY(mu_) =
      0;  // counts streams: callbacks of an old one are ignored
  std::unique_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
  std::deque<Message> queue_ ABSL_GUARDED_BY(mu_);
  bool sending_ ABSL_GUARDED_BY(mu_) = false;  // a thread uses stream_ without the lock
  absl::Time next_attempt_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time opened_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // kOpen: since when
  Backoff backoff_ ABSL_GUARDED_BY(mu_);  // begins anew once a stream was of use
  absl::Status last_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
