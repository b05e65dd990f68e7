#include "common/shm_transport/shm_receiver.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/shm_transport/shm_link.h"

namespace sluice {
namespace {

// The other end is given room after so many bytes: it writes while this end goes on, and they are
// still in the cache.
constexpr size_t kReadPieceBytes = 64 << 10;
// A message arrives in slices of at most so many bytes. A frame of the data plane is one slice
// (kChunkBytes in common/wire/frame.h, and its header).
constexpr size_t kChunkBytes = (1 << 20) + (64 << 10);
// A stream gives the others of its thread a turn after so many bytes and messages.
constexpr size_t kBytesATurn = 1 << 20;
constexpr int kStepsATurn = 64;

}  // namespace

ShmReceiver::ShmReceiver(const ShmLink& link, bool from_client, const Bounds& bounds,
                         Listener* listener)
    : socket_(link.socket.fd()),
      bounds_(bounds),
      listener_(listener),
      reader_(link.control(from_client), link.data(from_client), link.ring_bytes),
      // A sender that waits for room is woken once half of the ring is free: a frame that fits into
      // the other half always becomes complete.
      max_lent_bytes_(link.ring_bytes / 2),
      loan_(std::make_shared<char>()) {}

bool ShmReceiver::Read() {
  bool progress = false;
  size_t bytes = 0;
  for (int step = 0; step < kStepsATurn && bytes < kBytesATurn && !ended_; ++step) {
    absl::StatusOr<size_t> available = reader_.Available();
    if (!available.ok()) {
      listener_->OnFault(available.status());
      break;
    }
    // The ring is still writable for whoever has its memory. Only what was there when the peer went
    // away came from a live peer.
    const size_t usable = peer_gone_ ? std::min(*available, left_by_peer_) : *available;
    const size_t read = ReadSome(usable);
    if (read == 0) {
      if (lends_frame_ && usable > frame_seen_) progress = true;  // the rest may soon be there
      frame_seen_ = usable;
      break;
    }
    left_by_peer_ -= std::min(read, left_by_peer_);
    bytes += read;
    progress = true;
    // Handlers may end the stream. Nothing more of it is delivered then.
    if (listener_->failed()) break;
  }
  PublishRead();
  return progress;
}

size_t ShmReceiver::ReadSome(size_t available) {
  if (!in_frame_) {
    if (available < sizeof(FrameHead)) return 0;
    // Copied out before it is checked: the peer can still change the bytes in the ring.
    reader_.Read(reinterpret_cast<uint8_t*>(&head_), sizeof(FrameHead));
    read_unpublished_ = true;
    BeginFrame();
    return sizeof(FrameHead);
  }
  if (lends_frame_) {
    const size_t bytes = frame_left_;
    if (available < bytes) return 0;
    LendFrame();
    return bytes;
  }
  if (available == 0 || (chunk_ == nullptr && !BeginChunk())) return 0;
  const size_t n = std::min({available, chunk_size_ - chunk_filled_, kReadPieceBytes});
  reader_.Read(chunk_.get() + chunk_filled_, n);
  read_unpublished_ = true;
  chunk_filled_ += n;
  frame_left_ -= n;
  if (chunk_filled_ == chunk_size_) {
    const uint8_t* const bytes = chunk_.get();
    incoming_.emplace_back(bytes, chunk_size_, std::move(chunk_));
    chunk_ = nullptr;
  }
  // Less often for small reads: each publication may wake the peer, which costs a system call.
  if (n == kReadPieceBytes) PublishRead();
  if (frame_left_ == 0) EndFrame();
  return n;
}

void ShmReceiver::BeginFrame() {
  const bool end = head_.kind == FrameHead::kEnd;
  size_t max_bytes = bounds_.max_message_bytes;
  if (frames_ == 0) max_bytes = std::min(max_bytes, bounds_.max_first_message_bytes);
  // The peer decides every field. Kinds and padding are strict, so that a later protocol can use
  // them.
  if ((!end && head_.kind != FrameHead::kMessage) || head_.zero != 0 || (end && head_.bytes != 0)) {
    listener_->OnFault(absl::DataLossError(absl::StrCat(
        "the peer sent a frame of an unknown kind: ", head_.kind, ", ", head_.bytes, " bytes")));
  } else if (head_.bytes > max_bytes) {
    listener_->OnFault(absl::ResourceExhaustedError(
        absl::StrCat("the peer sent a message of ", head_.bytes, " bytes, more than the ",
                     max_bytes, " that are allowed")));
  } else {
    in_frame_ = true;
    frame_left_ = head_.bytes;
    frame_seen_ = 0;
    // Larger frames never lie in the ring as a whole: they are copied out as they come.
    lends_frame_ = frame_left_ > 0 && frame_left_ <= max_lent_bytes_;
    if (frame_left_ == 0) EndFrame();
  }
}

bool ShmReceiver::BeginChunk() {
  const size_t size = std::min<uint64_t>(frame_left_, kChunkBytes);
  if (bounds_.served != nullptr) {
    // Before the memory is taken: many peers could otherwise begin large messages and never end
    // them.
    if (!bounds_.served->incoming()->TryAdd(size)) {
      bounds_.served->CutMostIncoming(size);
      return false;
    }
    incoming_bytes_.fetch_add(size, std::memory_order_relaxed);
  }
  chunk_size_ = size;
  chunk_filled_ = 0;
  chunk_.reset(new uint8_t[size]);
  return true;
}

void ShmReceiver::ReleaseIncoming() {
  const size_t bytes = incoming_bytes_.exchange(0, std::memory_order_relaxed);
  if (bytes > 0) bounds_.served->incoming()->Sub(bytes);
}

void ShmReceiver::EndFrame() {
  PublishRead();  // the peer may use the room while the message is handled
  in_frame_ = false;
  Message message;
  message.swap(incoming_);
  ReleaseIncoming();  // from here on it is in the hands of the handler, which has its own bounds
  ++frames_;
  if (head_.kind == FrameHead::kEnd) {
    ended_ = true;
    listener_->OnEnd();
    return;
  }
  listener_->OnMessage(std::move(message));
}

void ShmReceiver::LendFrame() {
  const size_t bytes = frame_left_;
  in_frame_ = lends_frame_ = false;
  ++frames_;
  {
    Message slices;
    for (const RingReader::Piece& piece : reader_.Peek(bytes))
      if (piece.size > 0) slices.emplace_back(piece.data, piece.size, loan_);
    listener_->OnLent(LentMessage(std::move(slices)));
  }
  // The ring's bytes are overwritten next, so a slice that is kept would silently change. This is a
  // bug of ours, not of the peer.
  if (loan_.use_count() != 1) {
    std::fprintf(stderr, "ShmReceiver: somebody holds slices of a lent message after the call\n");
    std::abort();
  }
  reader_.Skip(bytes);
  read_unpublished_ = true;
  PublishRead();
}

void ShmReceiver::PublishRead() {
  if (read_unpublished_ && reader_.Publish()) Tell(PacketKind::kWake);
  read_unpublished_ = false;
}

size_t ShmReceiver::bytes_wanted() const {
  if (!in_frame_) return sizeof(FrameHead);
  return lends_frame_ ? frame_left_ : 1;
}

bool ShmReceiver::Sleep() {
  // Announce, then look again: a peer that wrote before it could see the announcement sends no
  // wake-up.
  reader_.AnnounceSleep();
  const absl::StatusOr<size_t> available = reader_.Available();
  if (available.ok() && *available < bytes_wanted()) return true;
  reader_.CancelSleep();
  return false;
}

void ShmReceiver::SetPeerGone() {
  peer_gone_ = true;
  const absl::StatusOr<size_t> available = reader_.Available();
  left_by_peer_ = available.ok() ? *available : 0;
}

void ShmReceiver::Finish() {
  ended_ = true;
  ReleaseIncoming();
  incoming_.clear();
  chunk_ = nullptr;
}

void ShmReceiver::Tell(PacketKind kind) { SendPacket(socket_, kind); }

}  // namespace sluice
