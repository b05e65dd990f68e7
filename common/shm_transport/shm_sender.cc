#include "common/shm_transport/shm_sender.h"

#include <algorithm>
#include <utility>

#include "common/shm_transport/shm_link.h"

namespace sluice {
namespace {

// The other end is shown what was copied after so many bytes: it copies them while this end goes
// on, and they are still in the cache.
constexpr size_t kWritePieceBytes = 64 << 10;

}  // namespace

ShmSender::ShmSender(std::shared_ptr<const ShmLink> link, bool to_server, size_t max_queued_bytes,
                     ByteBudget* queued)
    : max_queued_bytes_(max_queued_bytes),
      queued_(queued),
      link_(std::move(link)),
      writer_(link_->control(to_server), link_->data(to_server), link_->ring_bytes) {}

ShmSender::Queued ShmSender::Queue(Message message) {
  Outgoing out;
  out.head.kind = FrameHead::kMessage;
  out.head.bytes = MessageSize(message);
  out.message = std::move(message);
  const size_t size = out.head.bytes;
  MutexLock lock(&mutex_);
  if (closed_) return Queued::kClosed;
  // The message is not taken, and the stream ends: later messages must not arrive without this one.
  if (queued_bytes_ + size > max_queued_bytes_) return Queued::kTooMuch;
  queue_.push_back(std::move(out));
  queued_bytes_ += size;
  return queued_->Add(size) ? Queued::kYes : Queued::kBeyondBudget;
}

bool ShmSender::Close(Time now) {
  MutexLock lock(&mutex_);
  if (closed_) return false;
  closed_ = true;
  closed_since_ = now;
  Outgoing end;
  end.head.kind = FrameHead::kEnd;
  queue_.push_back(std::move(end));
  return true;
}

void ShmSender::Stop() {
  // Declared before the lock, so released after it: slices may run any code when they are dropped.
  std::deque<Outgoing> lost;
  MutexLock lock(&mutex_);
  stopped_ = closed_ = true;
  lost = TakeQueue();
}

void ShmSender::Finish() {
  std::deque<Outgoing> lost;
  std::shared_ptr<const ShmLink> unused;
  MutexLock lock(&mutex_);
  finished_ = stopped_ = closed_ = true;
  lost = TakeQueue();
  // A pump that is under way writes to the memory. It releases the link itself when it sees
  // `finished_`.
  if (!pumping_) unused.swap(link_);
}

ShmSender::State ShmSender::state() {
  MutexLock lock(&mutex_);
  return {blocked_ || pumping_, end_written_};
}

bool ShmSender::closed() {
  MutexLock lock(&mutex_);
  return closed_;
}

std::optional<ShmSender::Time> ShmSender::closed_since() {
  MutexLock lock(&mutex_);
  return closed_since_;
}

size_t ShmSender::queued_bytes() {
  MutexLock lock(&mutex_);
  return queued_bytes_;
}

std::deque<ShmSender::Outgoing> ShmSender::TakeQueue() {
  std::deque<Outgoing> taken;
  taken.swap(queue_);
  // The pump still reads the current message.
  if (!pumping_ && current_.has_value()) {
    taken.push_back(*std::move(current_));
    current_.reset();
  }
  for (const Outgoing& out : taken) Uncount(out);
  return taken;
}

void ShmSender::Uncount(const Outgoing& out) {
  queued_bytes_ -= out.head.bytes;
  queued_->Sub(out.head.bytes);
}

ShmSender::Pumped ShmSender::Pump() {
  Pumped pumped;
  std::shared_ptr<const ShmLink> unused;
  std::deque<Outgoing> lost;
  mutex_.Lock();
  // Otherwise the ring could get room, and this thread hear of it, between the other thread's last
  // look and its leaving.
  pump_again_ = true;
  while (!pumping_ && pump_again_) {
    pumping_ = true;
    pump_again_ = blocked_ = false;
    while (!stopped_ && !blocked_) {
      if (!current_.has_value()) {
        if (queue_.empty()) break;
        current_ = std::move(queue_.front());
        queue_.pop_front();
      }
      // Copying takes long, and Send must not wait for it. `pumping_` keeps other threads out.
      mutex_.Unlock();
      const Written written = WriteSome(&*current_, &pumped.progress);
      std::optional<Outgoing> done;  // its slices are released without the lock
      if (written == Written::kAll) done.swap(current_);
      const FrameHead head = done.has_value() ? done->head : FrameHead();
      done.reset();
      if (written == Written::kNoRoom && found_full_for_test_ != nullptr) found_full_for_test_();
      mutex_.Lock();
      if (written == Written::kAll) {
        Outgoing counted;
        counted.head = head;
        Uncount(counted);
        if (head.kind == FrameHead::kEnd) pumped.end_written = end_written_ = true;
      } else if (written == Written::kNoRoom) {
        blocked_ = true;
      } else {
        pumped.impossible = true;
        break;
      }
    }
    pumping_ = false;
    if (pumped.impossible) break;
  }
  if (!pumping_ && stopped_) {
    for (Outgoing& out : TakeQueue()) lost.push_back(std::move(out));
    if (finished_) unused.swap(link_);
  }
  mutex_.Unlock();
  return pumped;
}

ShmSender::Written ShmSender::WriteSome(Outgoing* out, bool* progress) {
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
      // The position in shared memory is the peer's word. A room larger than the ring would have
      // this thread write beyond it.
      if (!now.ok()) return Written::kImpossible;
      room = *now;
    }
    n = std::min({n, room, kWritePieceBytes - unpublished});
    writer_.Write(bytes, n);
    *progress = true;
    room -= n;
    unpublished += n;
    (head ? out->head_done : out->offset) += n;
    if (unpublished == kWritePieceBytes) publish();
  }
  publish();
  return Written::kAll;
}

void ShmSender::Tell(PacketKind kind) { SendPacket(link_->socket.fd(), kind); }

}  // namespace sluice
