#include "common/shm_transport/pending_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

PendingStream::PendingStream(PserverAddress to, StreamCallbacks callbacks, size_t max_queued_bytes)
    : to_(std::move(to)), max_queued_bytes_(max_queued_bytes), callbacks_(std::move(callbacks)) {}

void PendingStream::Send(Message message) {
  Stream* stream;
  bool overflow = false;
  {
    MutexLock lock(&mutex_);
    if (over_ || closing_) return;
    stream = stream_.get();
    // While the phase is kOpening, Open hands the queue on. Later messages queue behind it, so that
    // their order stays.
    if (phase_ != Phase::kOpen) {
      // Once the stream opens, it has its own bound.
      if (phase_ == Phase::kConnecting) queued_bytes_ += MessageSize(message);
      overflow = queued_bytes_ > max_queued_bytes_;
      if (!overflow) queue_.push_back(std::move(message));
      stream = nullptr;
    }
  }
  if (overflow) {
    End(absl::ResourceExhaustedError(absl::StrCat("more than ", max_queued_bytes_,
                                                  " bytes wait for the stream to ", to_.address)));
  } else if (stream != nullptr) {
    stream->Send(std::move(message));
  }
}

void PendingStream::Close() {
  Stream* stream;
  {
    MutexLock lock(&mutex_);
    closing_ = true;
    stream = phase_ == Phase::kOpen ? stream_.get() : nullptr;
  }
  if (stream != nullptr) stream->Close();
}

void PendingStream::Open(const std::function<std::unique_ptr<Stream>(StreamCallbacks)>& open) {
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    phase_ = Phase::kOpening;
  }
  // Without the lock: the stream may call back before `open` returns.
  std::unique_ptr<Stream> opened = open(std::move(callbacks_));
  Stream* const stream = opened.get();
  if (HandOn(std::move(opened))) stream->Close();
  MutexLock lock(&mutex_);
  handed_on_ = true;
  changed_.NotifyAll();
}

bool PendingStream::HandOn(std::unique_ptr<Stream> opened) {
  Stream* const stream = opened.get();
  mutex_.Lock();
  stream_ = std::move(opened);
  while (!queue_.empty()) {
    Message message = std::move(queue_.front());
    queue_.pop_front();
    // Send may take long, and may call back.
    mutex_.Unlock();
    stream->Send(std::move(message));
    mutex_.Lock();
  }
  const bool close = closing_;
  phase_ = Phase::kOpen;
  mutex_.Unlock();
  return close;
}

void PendingStream::End(const absl::Status& status) {
  std::deque<Message> lost;
  {
    MutexLock lock(&mutex_);
    // A stream that is open is ended by its own transport.
    if (over_ || phase_ != Phase::kConnecting) return;
    over_ = true;
    // Drop waits for the callback to end, since its owner may be destroyed after it.
    calling_ = true;
    lost.swap(queue_);
  }
  lost.clear();
  callbacks_.on_closed(status);
  MutexLock lock(&mutex_);
  calling_ = false;
  changed_.NotifyAll();
}

void PendingStream::Drop() {
  End(absl::CancelledError(absl::StrCat("stream to ", to_.address, ": the client dropped it")));
  std::unique_ptr<Stream> stream;
  {
    MutexLock lock(&mutex_);
    // A stream that is being opened cannot be dropped before Open has stopped using it.
    while (calling_ || (phase_ != Phase::kConnecting && !handed_on_)) changed_.Wait(&mutex_);
    stream = std::move(stream_);
  }
}

}  // namespace sluice
