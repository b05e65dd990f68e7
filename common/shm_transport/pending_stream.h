// A client's stream whose transport is still to be found: it queues messages until it is open, and
// then hands them on.
//
// ShmTransport::Connect returns a stream at once, while a thread asks the server whether memory can
// be shared. That thread then opens the real stream, over whichever transport, or ends this one.
//
//   connecting  Send queues. End closes the stream with an error.
//   opening     Open was called: the queue goes to the real stream, in order, while Send still
//               queues. Errors are those of the real stream from here on.
//   open        Send and Close go to the real stream.
//
// Invariants: on_closed is called once: by End or Drop, or by the real stream. After Drop has
// returned, no callback runs and the real stream is gone.
//
// Lifetime: shared by the client's end, which drops it, and the connecting thread.
//
// Thread safety: safe from any thread; Open is called once.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/transport/transport.h"

namespace sluice {

class PendingStream {
 public:
  // While it connects, more than `max_queued_bytes` in the queue end the stream with
  // RESOURCE_EXHAUSTED.
  PendingStream(PserverAddress to, StreamCallbacks callbacks, size_t max_queued_bytes);

  const PserverAddress& to() const { return to_; }

  // As in Stream.
  void Send(Message message);
  void Close();

  // Opens the stream with `open`, which gets its callbacks; does nothing if it has ended.
  void Open(const std::function<std::unique_ptr<Stream>(StreamCallbacks)>& open);
  // The stream cannot be opened: it ends with `status`. Does nothing once Open was called.
  void End(const absl::Status& status);
  // The client destroys its end: the stream ends with CANCELLED unless it has ended already. Waits
  // for a callback that runs, and for Open.
  void Drop();

 private:
  enum class Phase { kConnecting, kOpening, kOpen };

  // Sends the queue to the stream that was opened, and returns whether to close it.
  bool HandOn(std::unique_ptr<Stream> opened);

  const PserverAddress to_;
  const size_t max_queued_bytes_;
  StreamCallbacks callbacks_;  // of whoever ends or opens the stream
  Mutex mutex_;
  CondVar changed_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kConnecting;
  std::unique_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool handed_on_ ABSL_GUARDED_BY(mutex_) = false;  // the connecting thread has let go
  bool over_ ABSL_GUARDED_BY(mutex_) = false;       // ended before it was open
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;    // on_closed runs
};

}  // namespace sluice
