#include "common/shm_transport/shm_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/shm_transport/shm_thread.h"

namespace sluice {
namespace {

// The other end is shown what was copied after so many bytes: it copies them while this end goes
// on, and they are still in the cache.
constexpr size_t kPieceBytes = 64 << 10;
// A message arrives in slices of at most so many bytes. A frame of the data plane is one slice
// (kChunkBytes in common/wire/frame.h, and its header). A peer that announces a long message makes
// this process allocate no more than a chunk ahead of what it sends.
constexpr size_t kChunkBytes = (1 << 20) + (64 << 10);
// A stream gives the others of its thread a turn after so many bytes, messages and packets.
constexpr size_t kBytesATurn = 1 << 20;
constexpr int kStepsATurn = 64, kPacketsATurn = 16;

absl::Duration Since(ShmStream::Time then, ShmStream::Time now) {
  return absl::FromChrono(now - then);
}

absl::Status StatusOfPacket(const std::string& packet) {
  const int code = packet.size() > 1 ? static_cast<uint8_t>(packet[1]) : 0;
  if (code < 1 || code > static_cast<int>(absl::StatusCode::kUnauthenticated))
    return absl::DataLossError("the server ended the stream with a code that does not exist");
  return absl::Status(static_cast<absl::StatusCode>(code), packet.substr(2));
}

}  // namespace

ShmStream::ShmStream(Side side, ShmLink link, std::shared_ptr<Host> host,
                     std::shared_ptr<ShmThread> thread)
    : side_(side),
      host_(std::move(host)),
      thread_(std::move(thread)),
      link_(std::move(link)),
      writer_(link_->control(side == Side::kClient), link_->data(side == Side::kClient),
              link_->ring_bytes),
      reader_(link_->control(side == Side::kServer), link_->data(side == Side::kServer),
              link_->ring_bytes),
      opened_(std::chrono::steady_clock::now()),
      heard_(opened_) {}

// --- Sending, from any thread.

void ShmStream::Send(Message message) {
  Outgoing out;
  out.head.kind = FrameHead::kMessage;
  out.head.bytes = MessageSize(message);
  out.message = std::move(message);
  const size_t size = out.head.bytes;
  bool overflow, within = true;
  {
    MutexLock lock(&mutex_);
    if (closing_) return;
    overflow = queued_bytes_ + size > host_->max_queued_bytes;
    if (!overflow) {
      queue_.push_back(std::move(out));
      queued_bytes_ += size;
      within = host_->queued()->Add(size);
    }
  }
  if (overflow) {
    const absl::Status unread = absl::ResourceExhaustedError(absl::StrCat(
        "more than ", host_->max_queued_bytes,
        " bytes wait to be sent; the peer is not reading. Read faster, or connect again"));
    host_->served != nullptr ? host_->served->Cut(this, unread) : Abort(unread);
    return;
  }
  Pump();
  if (!within && host_->served != nullptr) host_->served->CutMostQueued();
}

void ShmStream::Close() {
  {
    MutexLock lock(&mutex_);
    if (closing_) return;
    closing_ = true;
    closed_at_ = std::chrono::steady_clock::now();
    Outgoing end;
    end.head.kind = FrameHead::kEnd;
    queue_.push_back(std::move(end));
  }
  Pump();
}

void ShmStream::Abort(const absl::Status& status) {
  std::deque<Outgoing> lost;
  {
    MutexLock lock(&mutex_);
    if (finished_ || !abort_.ok()) return;
    abort_ = status;
    closing_ = true;
    lost = TakeQueue();
  }
  thread_->Look(shared_from_this());
}

bool ShmStream::ending() {
  MutexLock lock(&mutex_);
  return closing_;
}

// Those of a closed stream count too: its client may have asked for much and closed.
size_t ShmStream::queued_bytes() {
  MutexLock lock(&mutex_);
  return cut_ || !abort_.ok() ? 0 : queued_bytes_;
}

size_t ShmStream::incoming_bytes() {
  MutexLock lock(&mutex_);
  return cut_ || !abort_.ok() ? 0 : incoming_bytes_.load(std::memory_order_relaxed);
}

bool ShmStream::ClaimCut() {
  MutexLock lock(&mutex_);
  return !std::exchange(cut_, true);
}

std::deque<ShmStream::Outgoing> ShmStream::TakeQueue() {
  std::deque<Outgoing> taken;
  taken.swap(queue_);
  if (!pumping_ && current_.has_value()) {
    taken.push_back(*std::move(current_));
    current_.reset();
  }
  for (const Outgoing& out : taken) Uncount(out);
  return taken;
}

void ShmStream::Uncount(const Outgoing& out) {
  queued_bytes_ -= out.head.bytes;
  host_->queued()->Sub(out.head.bytes);
}

bool ShmStream::Pump() {
  bool progress = false, impossible = false, end_written = false;
  std::optional<ShmLink> unused;
  std::deque<Outgoing> lost;
  mutex_.Lock();
  // Otherwise the ring could get room, and this thread hear of it, between the other thread's last
  // look and its leaving.
  pump_again_ = true;
  while (!pumping_ && pump_again_) {
    pumping_ = true;
    pump_again_ = blocked_ = false;
    while (!finished_ && abort_.ok() && !blocked_) {
      if (!current_.has_value()) {
        if (queue_.empty()) break;
        current_ = std::move(queue_.front());
        queue_.pop_front();
      }
      mutex_.Unlock();
      const Written written = WriteSome(&*current_, &progress);
      std::optional<Outgoing> done;  // its slices are released without the lock
      if (written == Written::kAll) done.swap(current_);
      const FrameHead head = done.has_value() ? done->head : FrameHead();
      done.reset();
      mutex_.Lock();
      if (written == Written::kAll) {
        Outgoing counted;
        counted.head = head;
        Uncount(counted);
        if (head.kind == FrameHead::kEnd) end_written = end_written_ = true;
      } else if (written == Written::kNoRoom) {
        blocked_ = true;
      } else {
        impossible = true;
        break;
      }
    }
    pumping_ = false;
    if (impossible) break;
  }
  if (!pumping_ && (finished_ || !abort_.ok())) {
    for (Outgoing& out : TakeQueue()) lost.push_back(std::move(out));
    if (finished_) unused.swap(link_);
  }
  mutex_.Unlock();
  if (impossible)
    Abort(absl::DataLossError("the peer's read position in shared memory is impossible"));
  if (end_written && side_ == Side::kServer) thread_->Look(shared_from_this());
  return progress;
}

ShmStream::Written ShmStream::WriteSome(Outgoing* out, bool* progress) {
  size_t room = 0, unpublished = 0;
  const auto publish = [&] {
    if (unpublished > 0 && writer_.Publish()) Tell(PacketKind::kWake);
    unpublished = 0;
  };
  while (true) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(&out->head) + out->head_done;
    size_t n = sizeof(FrameHead) - out->head_done;
    const bool head = n > 0;
    if (!head) {
      while (out->slice < out->message.size() && out->offset == out->message[out->slice].size()) {
        ++out->slice;
        out->offset = 0;
      }
      if (out->slice == out->message.size()) break;
      bytes = out->message[out->slice].data() + out->offset;
      n = out->message[out->slice].size() - out->offset;
    }
    if (room == 0) {
      absl::StatusOr<size_t> now = writer_.Room();
      if (now.ok() && *now == 0) {
        // The reader must see everything before it is asked for room.
        publish();
        writer_.AnnounceWait();
        now = writer_.Room();
        if (now.ok() && *now == 0) return Written::kNoRoom;
      }
      if (!now.ok()) return Written::kImpossible;
      room = *now;
    }
    n = std::min({n, room, kPieceBytes - unpublished});
    writer_.Write(bytes, n);
    *progress = true;
    room -= n;
    unpublished += n;
    (head ? out->head_done : out->offset) += n;
    if (unpublished == kPieceBytes) publish();
  }
  publish();
  return Written::kAll;
}

void ShmStream::Tell(PacketKind kind, const std::string& rest) {
  const std::string packet = static_cast<char>(kind) + rest;
  // Nothing is lost when the peer does not read: it still has wake-ups to read. A peer that is gone
  // is noticed when the socket is read.
  send(link_->socket.fd(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

// --- Receiving, on the stream's thread.

ShmStream::Outcome ShmStream::Run(Time now) {
  bool progress = !reading_over_ && ReadRing();
  if (peer_gone_ && !progress && !reading_over_) {
    Abort(absl::UnavailableError("the peer's process has ended, or has dropped the stream"));
  }
  bool blocked, end_written;
  absl::Status abort;
  {
    MutexLock lock(&mutex_);
    blocked = blocked_;
    end_written = end_written_;
    abort = abort_;
  }
  if (!abort.ok()) {
    if (side_ == Side::kServer && !peer_gone_) {
      const absl::string_view message = abort.message();
      Tell(PacketKind::kEnd,
           absl::StrCat(std::string(1, static_cast<char>(abort.code())), message.substr(0, 1024)));
    }
    EndReading(abort);
    return Outcome::kDone;
  }
  if (blocked && Pump()) progress = true;
  if (progress) heard_ = now;
  const bool done =
      side_ == Side::kServer ? end_written || (reading_over_ && peer_gone_) : reading_over_;
  if (!done) return progress ? Outcome::kProgress : Outcome::kIdle;
  EndReading(absl::OkStatus());
  return Outcome::kDone;
}

bool ShmStream::ReadRing() {
  bool progress = false;
  size_t bytes = 0;
  for (int step = 0; step < kStepsATurn && bytes < kBytesATurn && !reading_over_; ++step) {
    absl::StatusOr<size_t> available = reader_.Available();
    if (!available.ok()) {
      Abort(available.status());
      break;
    }
    const size_t read = ReadSome(peer_gone_ ? std::min(*available, left_by_peer_) : *available);
    if (read == 0) break;
    left_by_peer_ -= std::min(read, left_by_peer_);
    bytes += read;
    progress = true;
    MutexLock lock(&mutex_);
    if (!abort_.ok()) break;
  }
  PublishRead();
  return progress;
}

size_t ShmStream::ReadSome(size_t available) {
  if (!in_frame_) {
    if (available < sizeof(FrameHead)) return 0;
    reader_.Read(reinterpret_cast<uint8_t*>(&head_), sizeof(FrameHead));
    read_unpublished_ = true;
    BeginFrame();
    return sizeof(FrameHead);
  }
  if (available == 0 || (chunk_ == nullptr && !BeginChunk())) return 0;
  const size_t n = std::min({available, chunk_size_ - chunk_filled_, kPieceBytes});
  reader_.Read(chunk_.get() + chunk_filled_, n);
  read_unpublished_ = true;
  chunk_filled_ += n;
  frame_left_ -= n;
  if (chunk_filled_ == chunk_size_) {
    const uint8_t* const bytes = chunk_.get();
    incoming_.emplace_back(bytes, chunk_size_, std::move(chunk_));
    chunk_ = nullptr;
  }
  if (n == kPieceBytes) PublishRead();
  if (frame_left_ == 0) EndFrame();
  return n;
}

void ShmStream::BeginFrame() {
  const bool end = head_.kind == FrameHead::kEnd;
  size_t max_bytes = host_->max_message_bytes;
  if (side_ == Side::kServer && !heard_message_)
    max_bytes = std::min(max_bytes, host_->max_first_message_bytes);
  if ((!end && head_.kind != FrameHead::kMessage) || head_.zero != 0 || (end && head_.bytes != 0)) {
    Abort(absl::DataLossError(absl::StrCat("the peer sent a frame of an unknown kind: ", head_.kind,
                                           ", ", head_.bytes, " bytes")));
  } else if (head_.bytes > max_bytes) {
    Abort(absl::ResourceExhaustedError(absl::StrCat("the peer sent a message of ", head_.bytes,
                                                    " bytes, more than the ", max_bytes,
                                                    " that are allowed")));
  } else {
    in_frame_ = true;
    frame_left_ = head_.bytes;
    if (frame_left_ == 0) EndFrame();
  }
}

bool ShmStream::BeginChunk() {
  const size_t size = std::min<uint64_t>(frame_left_, kChunkBytes);
  if (host_->served != nullptr) {
    if (!host_->served->incoming()->TryAdd(size)) {
      host_->served->CutMostIncoming(size);
      return false;
    }
    incoming_bytes_.fetch_add(size, std::memory_order_relaxed);
  }
  chunk_size_ = size;
  chunk_filled_ = 0;
  chunk_.reset(new uint8_t[size]);
  return true;
}

void ShmStream::ReleaseIncoming() {
  const size_t bytes = incoming_bytes_.exchange(0, std::memory_order_relaxed);
  if (bytes > 0) host_->served->incoming()->Sub(bytes);
}

void ShmStream::EndFrame() {
  PublishRead();  // the peer may use the room while the message is handled
  in_frame_ = false;
  Message message;
  message.swap(incoming_);
  ReleaseIncoming();  // from here on it is in the hands of the handler, which has its own bounds
  const bool first = !std::exchange(heard_message_, true);
  if (first && host_->served != nullptr && head_.kind == FrameHead::kMessage)
    host_->served->Spoke(this);
  if (head_.kind == FrameHead::kEnd) {
    EndReading(absl::OkStatus());
    if (side_ == Side::kServer) Close();
    return;
  }
  {
    MutexLock lock(&mutex_);
    // A server that has closed its stream wants no more; a client still gets its answers.
    if (!abort_.ok() || (closing_ && side_ == Side::kServer)) return;
  }
  events_.on_message(std::move(message));
}

void ShmStream::EndReading(const absl::Status& status) {
  if (reading_over_) return;
  reading_over_ = true;
  const std::function<void(absl::Status)> on_closed = std::move(events_.on_closed);
  events_.on_message = nullptr;
  on_closed(status);
}

void ShmStream::PublishRead() {
  if (read_unpublished_ && reader_.Publish()) Tell(PacketKind::kWake);
  read_unpublished_ = false;
}

bool ShmStream::Sleep() {
  if (peer_gone_) return false;
  if (reading_over_) return true;  // whatever the peer still writes
  reader_.AnnounceSleep();
  const absl::StatusOr<size_t> available = reader_.Available();
  if (available.ok() && *available < (in_frame_ ? 1 : sizeof(FrameHead))) return true;
  reader_.CancelSleep();
  return false;
}

bool ShmStream::ReadSocket(Time now) {
  char packet[2048];
  bool any = peer_gone_;
  for (int i = 0; i < kPacketsATurn && !peer_gone_; ++i) {
    const ssize_t n = recv(link_->socket.fd(), packet, sizeof(packet), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    any = true;
    // A peer that leaves packets unread resets the connection; what it sent before follows.
    if (n < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (n <= 0) {
      PeerIsGone();
      break;
    }
    heard_ = now;
    waits_for_pong_ = false;
    const auto kind = static_cast<PacketKind>(packet[0]);
    if (kind == PacketKind::kPing) {
      Tell(PacketKind::kPong);
    } else if (kind == PacketKind::kEnd && side_ == Side::kClient) {
      Abort(StatusOfPacket(std::string(packet, n)));
    } else if (kind != PacketKind::kWake && kind != PacketKind::kPong) {
      Abort(absl::DataLossError("the peer sent a packet of an unknown kind"));
    }
  }
  return any;
}

void ShmStream::PeerIsGone() {
  peer_gone_ = true;
  // Only what is there now: whoever still holds the memory could write to it for ever.
  const absl::StatusOr<size_t> available = reader_.Available();
  left_by_peer_ = available.ok() ? *available : 0;
}

bool ShmStream::CheckPeer(Time now) {
  // This process may have been stopped itself: an answer may wait to be read.
  const bool any = ReadSocket(now);
  if (side_ == Side::kServer && !heard_message_ &&
      host_->first_message_timeout > absl::ZeroDuration() &&
      Since(opened_, now) > host_->first_message_timeout) {
    Abort(absl::DeadlineExceededError(
        absl::StrCat("the stream had no message for ",
                     absl::FormatDuration(host_->first_message_timeout), "; send a hello first")));
  }
  bool unread;
  {
    MutexLock lock(&mutex_);
    unread = side_ == Side::kServer && closing_ && abort_.ok() &&
             host_->close_timeout > absl::ZeroDuration() &&
             Since(closed_at_, now) > host_->close_timeout;
  }
  if (unread) {
    Abort(absl::DeadlineExceededError(
        absl::StrCat("the client did not read the rest of the closed stream within ",
                     absl::FormatDuration(host_->close_timeout))));
  }
  if (waits_for_pong_) {
    if (Since(pinged_, now) <= host_->keepalive_timeout) return any;
    Abort(absl::UnavailableError(absl::StrCat(
        "the peer's process does not answer since ",
        absl::FormatDuration(absl::Trunc(Since(heard_, now), absl::Milliseconds(1))))));
  } else if (Since(heard_, now) > host_->keepalive_time) {
    waits_for_pong_ = true;
    pinged_ = now;
    Tell(PacketKind::kPing);
  }
  return any;
}

void ShmStream::Finish() {
  std::deque<Outgoing> lost;
  std::optional<ShmLink> unused;
  {
    MutexLock lock(&mutex_);
    finished_ = closing_ = true;
    lost = TakeQueue();
    if (!pumping_) unused.swap(link_);
  }
  // Others may hold the stream for long.
  ReleaseIncoming();
  incoming_.clear();
  chunk_ = nullptr;
  unused.reset();  // before anybody hears that the stream is finished
  const std::function<void()> on_finished = std::move(events_.on_finished);
  events_ = Events();
  if (on_finished != nullptr) on_finished();
}

}  // namespace sluice
