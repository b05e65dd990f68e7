#include "common/transport/grpc_server_call.h"

#include <grpc/grpc.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

// The handler's end of the stream. It may outlive the call: Detach makes it let go of the call
// before the call's last operation has ended. Later sends do nothing.
class GrpcServerCall::Handle : public Stream {
 public:
  explicit Handle(GrpcServerCall* call) : call_(call) {}

  void Send(Message message) override {
    if (GrpcServerCall* call = Hold()) {
      call->Send(std::move(message));
      call->Release();
    }
  }

  void Close() override {
    if (GrpcServerCall* call = Hold()) {
      call->Close();
      call->Release();
    }
  }

  // A Send under way holds its own reference to the call, so Detach need not wait for it.
  void Detach() {
    MutexLock lock(&mutex_);
    call_ = nullptr;
  }

 private:
  // Lock order: a handle's mutex, then the mutex of its call.
  GrpcServerCall* Hold() {
    MutexLock lock(&mutex_);
    if (call_ != nullptr) call_->AddRef();
    return call_;
  }

  Mutex mutex_;
  GrpcServerCall* call_ ABSL_GUARDED_BY(mutex_);
};

void GrpcServerCall::Request(grpc::AsyncGenericService* service, grpc::CompletionQueue* call_queue,
                             grpc::ServerCompletionQueue* notification_queue) {
  queue_events_ = call_queue;
  on_requested_.run = [this](bool ok) { OnRequested(ok); };
  on_done_.run = [this](bool) { OnDone(); };
  on_written_.run = [this](bool ok) { OnWritten(ok); };
  on_finished_.run = [this](bool) {
    {
      // Otherwise a call would hold its alarm, and so itself, until the timeout.
      MutexLock lock(&mutex_);
      if (awaits_end_) overdue_.Cancel();
    }
    Release();
  };
  on_overdue_.run = [this](bool passed) {
    if (passed) {
      table_->Cut(this, absl::DeadlineExceededError(absl::StrCat(
                            "the client did not read the rest of the closed stream within ",
                            absl::FormatDuration(host_->close_timeout))));
    }
    Release();
  };
  context_.AsyncNotifyWhenDone(&on_done_);
  service->RequestCall(&context_, &call_, call_queue, notification_queue, &on_requested_);
}

void GrpcServerCall::OnRequested(bool ok) {
  {
    MutexLock lock(&mutex_);
    accepted_ = ok;
    if (ok) ++ops_;  // for OnDone, which comes only then
  }
  host_->on_requested(this, ok);
  Release();
}

void GrpcServerCall::OnDone() {
  std::function<void()> told;
  {
    MutexLock lock(&mutex_);
    cancelled_ = context_.IsCancelled();
    std::swap(told, on_cancel_);
    if (!cancelled_ || ending_) told = nullptr;
  }
  if (told) told();
  Release();
}

bool GrpcServerCall::cancelled() {
  MutexLock lock(&mutex_);
  return cancelled_;
}

void GrpcServerCall::OnCancel(std::function<void()> told) {
  {
    MutexLock lock(&mutex_);
    if (ending_) return;
    if (!cancelled_) {
      on_cancel_ = std::move(told);
      return;
    }
  }
  told();
}

std::string GrpcServerCall::Metadata(const std::string& key) const {
  const auto it = context_.client_metadata().find(key);
  if (it == context_.client_metadata().end()) return "";
  return std::string(it->second.data(), it->second.size());
}

void GrpcServerCall::ServeStream(const StreamHandlerFactory& factory, const PeerIdentity& peer) {
  handle_ = std::make_shared<Handle>(this);
  handler_ = factory(handle_, peer);
  if (handler_ == nullptr) {
    handle_->Detach();
    Abort(absl::ResourceExhaustedError("the server refused the stream"));
    return;
  }
  AddRef();
  on_read_.run = [this](bool ok) { OnRead(ok); };
  call_.Read(&incoming_, &on_read_);
  AwaitFirstMessage();
}

void GrpcServerCall::AwaitFirstMessage() {
  AddRef();
  on_silence_.run = [this](bool passed) {
    if (passed && !heard_) {
      const absl::Status why = absl::DeadlineExceededError(absl::StrCat(
          "no message came within ", absl::FormatDuration(host_->first_message_timeout),
          " of the headers; send the first message at once"));
      table_->GiveUpSilent(this, why);
    }
    Release();
  };
  silence_.Set(queue_events_, GrpcDeadline(host_->first_message_timeout), &on_silence_);
}

// Without it, a call would hold its alarm, and so itself, until the timeout.
void GrpcServerCall::Hear(bool ok) {
  if (heard_) return;
  heard_ = true;
  silence_.Cancel();
  if (ok) table_->Spoke(this);
}

void GrpcServerCall::OnRead(bool ok) {
  Hear(ok);
  Message message;
  if (ok) {
    if (absl::Status s = FromByteBuffer(&incoming_, &message); !s.ok()) {
      table_->EndFaulty(this, s);
      ok = false;
    }
  }
  if (!ok) {
    EndReading();
    return;
  }
  bool ending;
  {
    MutexLock lock(&mutex_);
    ending = ending_;
  }
  // Read on even then: only a read that fails tells that the client has gone.
  if (!ending) handler_->OnMessage(std::move(message));
  call_.Read(&incoming_, &on_read_);
}

void GrpcServerCall::EndReading() {
  // On the thread of the stream's messages, after the last of them.
  handler_->OnClosed();
  handler_.reset();
  handle_->Detach();
  Close();
  Release();
}

void GrpcServerCall::ServeUnary(size_t max_bytes, StartUnary start) {
  max_unary_bytes_ = max_bytes;
  start_unary_ = std::move(start);
  AddRef();
  on_read_.run = [this](bool ok) { OnUnaryRequest(ok); };
  call_.Read(&incoming_, &on_read_);
  AwaitFirstMessage();
}

void GrpcServerCall::OnUnaryRequest(bool ok) {
  Hear(ok);
  // A call that was given up for others has its answer already.
  if (!ok || ending()) {
    Reply(absl::InvalidArgumentError("the call ended before its request came"));
    return;  // this may be gone now
  }
  absl::StatusOr<std::string> request;
  // Before the copy and the parser, whose memory grows with the length.
  if (incoming_.Length() > max_unary_bytes_) {
    request = absl::InvalidArgumentError(absl::StrCat(method(), ": the request has ",
                                                      incoming_.Length(), " bytes; at most ",
                                                      max_unary_bytes_, " are allowed"));
    // gRPC's buffers go at once, although the handler may keep the call for long.
    incoming_.Clear();
  } else {
    request = TakeRequest();
  }
  start_unary_(std::move(request));  // this may be gone now
}

// Copies the request, so that it does not keep gRPC's larger buffers.
absl::StatusOr<std::string> GrpcServerCall::TakeRequest() {
  Message message;
  if (absl::Status s = FromByteBuffer(&incoming_, &message); !s.ok()) return s;
  std::string request;
  request.reserve(MessageSize(message));
  for (const Slice& slice : message) {
    request.append(reinterpret_cast<const char*>(slice.data()), slice.size());
  }
  return request;
}

void GrpcServerCall::Reply(const absl::StatusOr<std::string>& reply) {
  if (reply.ok()) {
    Send({Slice::FromString(*reply)});
    Close();
  } else {
    Abort(reply.status());
  }
  Release();
}

void GrpcServerCall::Send(Message message) {
  const size_t size = MessageSize(message);
  Queued queued{ToByteBuffer(message), size};
  const size_t max_bytes = table_->max_queued_bytes();
  bool overflow, within = true;
  {
    MutexLock lock(&mutex_);
    if (ending_) return;
    overflow = queued_bytes_ + size > max_bytes;
    if (!overflow) {
      queue_.push_back(std::move(queued));
      queued_bytes_ += size;
      within = table_->queued()->Add(size);
    }
  }
  if (overflow) {
    table_->Cut(
        this,
        absl::ResourceExhaustedError(absl::StrCat(
            "more than ", max_bytes,
            " bytes wait to be sent; the client is not reading. Read faster, or connect again")));
    return;
  }
  Pump();
  if (!within) table_->CutMostQueued();
}

std::shared_ptr<ServedStream> GrpcServerCall::Hold() {
  // A call whose last event is under way must not be revived.
  if (!TryAddRef()) return nullptr;
  return std::shared_ptr<ServedStream>(this, [this](ServedStream*) { Release(); });
}

bool GrpcServerCall::ClaimCut() {
  MutexLock lock(&mutex_);
  return !std::exchange(cut_, true);
}

// The write under way could wait for the client forever, so the call is cancelled. With a status of
// its own, because ServerContext::TryCancel would tell the client nothing but CANCELLED.
void GrpcServerCall::Cut(const absl::Status& status) {
  Abort(status);
  grpc_call_cancel_with_status(context_.c_call(), static_cast<grpc_status_code>(status.code()),
                               std::string(status.message()).c_str(), nullptr);
}

bool GrpcServerCall::ending() {
  MutexLock lock(&mutex_);
  return ending_;
}

// Those of a call that has ended count too: its client may have asked for much and closed.
size_t GrpcServerCall::queued_bytes() {
  MutexLock lock(&mutex_);
  return cut_ ? 0 : queued_bytes_;
}

void GrpcServerCall::Close() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    AwaitEnd();
  }
  Pump();
}

// A client that does not read would keep an ended call, and what is queued for it, for ever. The
// alarm is set under the lock, so that the end of the call finds it set; its event comes later, on
// the queue's thread.
void GrpcServerCall::AwaitEnd() {
  const bool unsent = writing_ || !queue_.empty();
  if (!accepted_ || awaits_end_ || finishing_ || !unsent) return;
  awaits_end_ = true;
  ++ops_;
  overdue_.Set(queue_events_, GrpcDeadline(host_->close_timeout), &on_overdue_);
}

void GrpcServerCall::Abort(const absl::Status& status) {
  std::deque<Queued> lost;
  {
    MutexLock lock(&mutex_);
    // A call that has ended already keeps its status, unless this drops messages it promised.
    if (!ending_ || !queue_.empty()) status_ = status;
    ending_ = true;
    lost = TakeQueue();
  }
  Pump();
}

std::deque<GrpcServerCall::Queued> GrpcServerCall::TakeQueue() {
  table_->queued()->Sub(queued_bytes_ - writing_bytes_);
  queued_bytes_ = writing_bytes_;
  std::deque<Queued> taken;
  taken.swap(queue_);
  return taken;
}

// Decides under the lock and calls gRPC after it: no lock is held during a call that may run other
// code. `ops_` is counted before the call, because its event may come at once on another thread.
void GrpcServerCall::Pump() {
  Queued next;
  grpc::Status status;
  bool finish = false;
  {
    MutexLock lock(&mutex_);
    // gRPC takes one write at a time, and nothing after Finish.
    if (!accepted_ || writing_ || finishing_) return;
    if (!queue_.empty()) {
      next = std::move(queue_.front());
      queue_.pop_front();
      writing_bytes_ = next.size;
      writing_ = true;
    } else if (ending_) {
      finish = finishing_ = true;
      status = ToGrpcStatus(status_);
    } else {
      return;
    }
    ++ops_;
  }
  if (finish) {
    call_.Finish(status, &on_finished_);
  } else {
    call_.Write(next.buffer, &on_written_);
  }
}

void GrpcServerCall::OnWritten(bool ok) {
  std::deque<Queued> lost;
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    queued_bytes_ -= writing_bytes_;
    table_->queued()->Sub(writing_bytes_);
    writing_bytes_ = 0;
    if (!ok) {  // the client is gone
      ending_ = true;
      lost = TakeQueue();
    }
  }
  Pump();
  Release();
}

void GrpcServerCall::AddRef() {
  MutexLock lock(&mutex_);
  ++ops_;
}

bool GrpcServerCall::TryAddRef() {
  MutexLock lock(&mutex_);
  if (ops_ == 0) return false;
  ++ops_;
  return true;
}

void GrpcServerCall::Release() {
  bool gone;
  {
    MutexLock lock(&mutex_);
    gone = --ops_ == 0;
  }
  if (gone) host_->on_gone(this);
}

}  // namespace sluice
