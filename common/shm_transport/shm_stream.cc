#include "common/shm_transport/shm_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/shm_transport/shm_link.h"
#include "common/shm_transport/shm_thread.h"

namespace sluice {
namespace {

absl::Duration Since(ShmStream::Time then, ShmStream::Time now) {
  return absl::FromChrono(now - then);
}

}  // namespace

ShmStream::ShmStream(Side side, ShmLink link, std::shared_ptr<Host> host,
                     std::shared_ptr<ShmThread> thread)
    : side_(side),
      host_(std::move(host)),
      thread_(std::move(thread)),
      opened_(std::chrono::steady_clock::now()),
      link_(std::make_shared<ShmLink>(std::move(link))),
      receiver_(*link_, side == Side::kServer, BoundsOfReceiver(), this),
      peer_(link_->socket.fd(),
            side == Side::kClient ? ShmPeer::Role::kServer : ShmPeer::Role::kClient,
            host_->keepalive_time, host_->keepalive_timeout, opened_),
      sender_(link_, side == Side::kClient, host_->max_queued_bytes, host_->queued()) {}

ShmReceiver::Bounds ShmStream::BoundsOfReceiver() const {
  ShmReceiver::Bounds bounds;
  bounds.max_message_bytes = host_->max_message_bytes;
  if (side_ == Side::kServer) bounds.max_first_message_bytes = host_->max_first_message_bytes;
  bounds.served = host_->served.get();
  return bounds;
}

// --- From any thread.

void ShmStream::Send(Message message) {
  const ShmSender::Queued queued = sender_.Queue(std::move(message));
  if (queued == ShmSender::Queued::kClosed) return;
  if (queued == ShmSender::Queued::kTooMuch) {
    const absl::Status unread = absl::ResourceExhaustedError(absl::StrCat(
        "more than ", host_->max_queued_bytes,
        " bytes wait to be sent; the peer is not reading. Read faster, or connect again"));
    // Through the table where there is one, so that the cut is reported.
    host_->served != nullptr ? host_->served->Cut(this, unread) : Abort(unread);
    return;
  }
  Pump();
  if (queued == ShmSender::Queued::kBeyondBudget && host_->served != nullptr)
    host_->served->CutMostQueued();
}

void ShmStream::Close() {
  if (sender_.Close(std::chrono::steady_clock::now())) Pump();
}

void ShmStream::Abort(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (finished_ || !abort_.ok()) return;
    // The first reason is the cause; later ones follow from it.
    abort_ = status;
    aborted_.store(true, std::memory_order_release);
  }
  // Everything that is queued is dropped now. The rest happens on the stream's thread, because
  // callbacks run there alone.
  sender_.Stop();
  thread_->Look(shared_from_this());
}

bool ShmStream::CountsBytes() {
  MutexLock lock(&mutex_);
  return !cut_ && abort_.ok();
}

bool ShmStream::ClaimCut() {
  MutexLock lock(&mutex_);
  return !std::exchange(cut_, true);
}

bool ShmStream::Pump() {
  const ShmSender::Pumped pumped = sender_.Pump();
  if (pumped.impossible)
    OnFault(absl::DataLossError("the peer's read position in shared memory is impossible"));
  // The server's stream is done with its end; its thread has to notice that.
  if (pumped.end_written && side_ == Side::kServer) thread_->Look(shared_from_this());
  return pumped.progress;
}

// --- On the stream's thread.

ShmStream::Outcome ShmStream::Run(Time now) {
  // Read before the check for a dead peer: what it wrote before it died still counts.
  bool progress = !closed_called_ && receiver_.Read();
  if (peer_.gone() && !progress && !closed_called_) {
    Abort(absl::UnavailableError("the peer's process has ended, or has dropped the stream"));
  }
  if (failed()) {
    absl::Status abort;
    {
      MutexLock lock(&mutex_);
      abort = abort_;
    }
    // Only servers send the reason: a client that goes away owes none.
    if (side_ == Side::kServer && !peer_.gone()) SendEnd(fd(), abort);
    CallClosed(abort);
    return Outcome::kDone;
  }
  const ShmSender::State sender = sender_.state();
  if (sender.blocked && Pump()) progress = true;
  if (progress) peer_.SetHeard(now);
  // A client is done when it has heard the server's end. A server must also get its own end out,
  // unless nobody is there to read it.
  const bool done = side_ == Side::kServer ? sender.end_written || (closed_called_ && peer_.gone())
                                           : closed_called_;
  if (!done) return progress ? Outcome::kProgress : Outcome::kIdle;
  CallClosed(absl::OkStatus());
  return Outcome::kDone;
}

bool ShmStream::TakesMessage() {
  if (receiver_.frames() == 1 && host_->served != nullptr) host_->served->Spoke(this);
  // A server that has closed its stream wants no more; a client still gets its answers.
  return !failed() && (side_ == Side::kClient || !sender_.closed());
}

void ShmStream::OnMessage(Message message) {
  if (TakesMessage()) events_.on_message(std::move(message));
}

void ShmStream::OnLent(const LentMessage& message) {
  if (!TakesMessage()) return;
  events_.on_lent != nullptr ? events_.on_lent(message) : events_.on_message(message.Copy());
}

void ShmStream::OnEnd() {
  CallClosed(absl::OkStatus());
  if (side_ == Side::kServer) Close();
}

void ShmStream::OnFault(const absl::Status& fault) {
  if (failed()) return;
  host_->served != nullptr ? host_->served->EndFaulty(this, fault) : Abort(fault);
}

void ShmStream::CallClosed(const absl::Status& status) {
  if (std::exchange(closed_called_, true)) return;
  // Callbacks own what the user has bound, such as the stream itself. Dropping them first breaks
  // such circles.
  const std::function<void(absl::Status)> on_closed = std::move(events_.on_closed);
  events_.on_message = nullptr;
  events_.on_lent = nullptr;
  on_closed(status);
}

bool ShmStream::Sleep() {
  if (peer_.gone()) return false;
  if (closed_called_) return true;  // whatever the peer still writes
  return receiver_.Sleep();
}

bool ShmStream::ReadSocket(Time now) {
  const bool was_gone = peer_.gone();
  const ShmPeer::Heard heard = peer_.Read(now);
  // A client sends no end with a status, so the socket brought something else.
  if (!heard.end.ok()) side_ == Side::kServer ? OnFault(heard.end) : Abort(heard.end);
  if (peer_.gone() && !was_gone) receiver_.SetPeerGone();
  return heard.any;
}

bool ShmStream::CheckPeer(Time now) {
  // This process may have been stopped itself: an answer may wait to be read.
  const bool any = ReadSocket(now);
  if (side_ == Side::kServer && receiver_.frames() == 0 &&
      host_->first_message_timeout > absl::ZeroDuration() &&
      Since(opened_, now) > host_->first_message_timeout) {
    const absl::Status silent = absl::DeadlineExceededError(
        absl::StrCat("the stream had no message for ",
                     absl::FormatDuration(host_->first_message_timeout), "; send a hello first"));
    host_->served != nullptr ? host_->served->GiveUpSilent(this, silent) : Abort(silent);
  }
  const std::optional<Time> closed = sender_.closed_since();
  if (side_ == Side::kServer && closed.has_value() && host_->close_timeout > absl::ZeroDuration() &&
      Since(*closed, now) > host_->close_timeout) {
    const absl::Status unread = absl::DeadlineExceededError(
        absl::StrCat("the client did not read the rest of the closed stream within ",
                     absl::FormatDuration(host_->close_timeout)));
    host_->served != nullptr ? host_->served->Cut(this, unread) : Abort(unread);
  }
  const absl::Status alive = peer_.CheckAlive(now);
  if (!alive.ok()) Abort(alive);
  return any;
}

void ShmStream::Finish() {
  {
    MutexLock lock(&mutex_);
    finished_ = true;
  }
  // Others may hold the stream for long. Memory and socket go before anybody hears that the stream
  // is finished.
  // Another thread may be in Pump with the link: the sender then lets go of it when that ends.
  sender_.Finish();
  receiver_.Finish();
  link_ = nullptr;
  const std::function<void()> on_finished = std::move(events_.on_finished);
  events_ = Events();
  if (on_finished != nullptr) on_finished();
}

}  // namespace sluice
