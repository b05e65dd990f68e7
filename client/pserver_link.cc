#include "client/pserver_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"

namespace sluice {
namespace {

constexpr uint64_t kHelloId = 0;
// A stream counts as useful, and resets the backoff, once it has answered a request or has been
// open this long. If every opened stream counted, one that is cut again and again would be opened,
// and everything sent again, every few milliseconds.
constexpr absl::Duration kHealthy = absl::Seconds(3);

}  // namespace

bool PserverLink::open() const {
  MutexLock lock(&mu_);
  return phase_ == Phase::kOpen;
}

void PserverLink::Enqueue(Message message) {
  MutexLock lock(&mu_);
  if (phase_ == Phase::kOpen) queue_.push_back(std::move(message));
}

void PserverLink::Flush() {
  // One thread at a time sends, which keeps the order. Another caller leaves its messages to it.
  mu_.Lock();
  if (sending_ || queue_.empty() || stream_ == nullptr) {
    mu_.Unlock();
    return;
  }
  sending_ = true;
  while (!queue_.empty()) {
    Message message = std::move(queue_.front());
    queue_.pop_front();
    Stream* const stream = stream_.get();  // not destroyed while sending_
    mu_.Unlock();
    stream->Send(std::move(message));
    mu_.Lock();
  }
  sending_ = false;
  mu_.Unlock();
  sender_left_.NotifyAll();
}

void PserverLink::Break(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (phase_ == Phase::kOpen || phase_ == Phase::kHello) GoDownLocked(why);
}

void PserverLink::GoDownLocked(const absl::Status& why) {
  if (phase_ == Phase::kOpen && options_.clock->Now() - opened_at_ >= kHealthy) backoff_.Reset();
  phase_ = Phase::kDown;
  last_error_ = why;
  // The client sends again what these messages carried, on a new stream.
  queue_.clear();
  // Pauses are up to a quarter longer, so that many workers do not reconnect in step.
  const double jitter = HashToUnit(CombineHash(options_.hello.rank(), connection_)) / 4;
  next_attempt_ = options_.clock->Now() + backoff_.Next() * (1 + jitter);
}

bool PserverLink::GoDown(uint64_t connection, const absl::Status& why) {
  MutexLock lock(&mu_);
  // Several callbacks may report the same end; only the first one counts.
  if (connection != connection_ || (phase_ != Phase::kOpen && phase_ != Phase::kHello)) {
    return false;
  }
  GoDownLocked(why);
  return true;
}

absl::Time PserverLink::ConnectIfDue(uint64_t generation, const Hello& more) {
  std::unique_ptr<Stream> old;
  uint64_t connection;
  {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kDown) return absl::InfiniteFuture();
    if (options_.clock->Now() < next_attempt_) return next_attempt_;
    // A sender may be using the old stream without the lock.
    while (sending_) sender_left_.Wait(&mu_);
    old = std::move(stream_);
    // From here on, callbacks of the old stream are ignored.
    connection = ++connection_;
  }
  old.reset();  // waits for its callbacks, which belong to an earlier connection
  Connect(connection, generation, more);
  return absl::InfiniteFuture();
}

void PserverLink::Connect(uint64_t connection, uint64_t generation, const Hello& more) {
  {
    MutexLock lock(&mu_);
    // Before the stream exists: its first callback may come before Connect returns.
    phase_ = Phase::kHello;
  }
  StreamCallbacks callbacks;
  callbacks.on_message = [this, connection](Message m) {
    OnMessage(connection, DecodeReply(std::move(m)));
  };
  callbacks.on_lent = [this, connection](const LentMessage& m) {
    OnMessage(connection, DecodeLentReply(m));
  };
  callbacks.on_closed = [this, connection](absl::Status s) { OnClosed(connection, s); };
  std::unique_ptr<Stream> stream = options_.transport->Connect(options_.to, std::move(callbacks));
  FrameHeader header;
  header.set_request_id(kHelloId);
  header.set_generation(generation);
  header.set_last(true);
  *header.mutable_hello() = options_.hello;
  header.mutable_hello()->MergeFrom(more);
  {
    MutexLock lock(&mu_);
    stream_ = std::move(stream);
    // Hello goes ahead of every message that its reply triggers. It is sent below, without the
    // lock.
    queue_.push_front(EncodeFrame(header, {}));
  }
  Flush();
}

void PserverLink::Shutdown() {
  // Destroyed without the lock: that waits for callbacks, which take it.
  std::unique_ptr<Stream> stream;
  {
    MutexLock lock(&mu_);
    phase_ = Phase::kShutdown;
    queue_.clear();
    while (sending_) sender_left_.Wait(&mu_);
    stream = std::move(stream_);
  }
}

void PserverLink::OnMessage(uint64_t connection, absl::StatusOr<DecodedReply> reply) {
  bool hello;
  {
    MutexLock lock(&mu_);
    // A late callback of an earlier stream must not touch this one.
    if (connection != connection_) return;
    if (phase_ != Phase::kOpen && phase_ != Phase::kHello) return;
    hello = phase_ == Phase::kHello;
    if (!hello) backoff_.Reset();
  }
  if (!reply.ok()) {
    if (GoDown(connection, reply.status())) options_.listener->OnBroken(options_.index);
  } else if (hello) {
    OnHelloReply(connection, reply->header);
  } else {
    options_.listener->OnReply(options_.index, *std::move(reply));
  }
}

void PserverLink::OnHelloReply(uint64_t connection, const ReplyHeader& header) {
  if (header.code() == 0) {
    {
      MutexLock lock(&mu_);
      if (connection != connection_ || phase_ != Phase::kHello) return;
      phase_ = Phase::kOpen;
      opened_at_ = options_.clock->Now();
      last_error_ = absl::OkStatus();
    }
    options_.listener->OnOpen(options_.index);
    return;
  }
  const absl::Status why(static_cast<absl::StatusCode>(header.code()), header.message());
  if (!GoDown(connection, why)) return;
  if (PserverNotReady(why.code())) {
    options_.listener->OnBroken(options_.index);
  } else {
    options_.listener->OnHelloRefused(options_.index, header);
  }
}

void PserverLink::OnClosed(uint64_t connection, const absl::Status& status) {
  const absl::Status why =
      status.ok() ? absl::UnavailableError("the pserver closed the stream") : status;
  if (!GoDown(connection, why)) return;
  if (absl::IsUnimplemented(why)) {
    // The transport cannot reach this pserver at all, as --transport=shm another host.
    ReplyHeader refusal;
    refusal.set_code(static_cast<int>(why.code()));
    refusal.set_message(std::string(why.message()));
    options_.listener->OnHelloRefused(options_.index, refusal);
  } else {
    options_.listener->OnBroken(options_.index);
  }
}

std::string PserverLink::State() const {
  MutexLock lock(&mu_);
  if (phase_ == Phase::kOpen) return "connected";
  if (!last_error_.ok()) return absl::StrCat("not connected: ", last_error_.ToString());
  return "connecting";
}

}  // namespace sluice
