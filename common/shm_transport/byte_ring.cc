#include "common/shm_transport/byte_ring.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/lent_message.h"

namespace sluice {
namespace {

absl::Status Impossible(const char* whose, uint64_t written, uint64_t read, size_t capacity) {
  return absl::DataLossError(absl::StrCat("the peer's ", whose, " position in shared memory is ",
                                          "impossible: ", written, " bytes written, ", read,
                                          " read, room for ", capacity));
}

// Takes an announcement: true once for each.
bool Take(std::atomic<uint32_t>* announced) {
  // The load alone keeps the line shared while the other end is awake.
  return announced->load() != 0 && announced->exchange(0) != 0;
}

}  // namespace

absl::StatusOr<size_t> RingWriter::Room() const {
  const uint64_t read = control_->read.load(), used = written_ - read;
  // Positions only grow, and the difference of two of them is right even after they wrap around.
  if (used > capacity_) return Impossible("read", written_, read, capacity_);
  return capacity_ - used;
}

void RingWriter::Write(const uint8_t* bytes, size_t n) {
  const size_t at = written_ & (capacity_ - 1), first = std::min(n, capacity_ - at);
  if (first > 0) std::memcpy(data_ + at, bytes, first);
  if (n > first) std::memcpy(data_, bytes + first, n - first);
  written_ += n;
}

bool RingWriter::Publish() {
  // Sequentially consistent, like the announcements: either this end sees that the reader sleeps,
  // or the reader sees the new position before it does.
  control_->written.store(written_);
  return Take(&control_->reader_sleeps);
}

absl::StatusOr<size_t> RingReader::Available() const {
  const uint64_t written = control_->written.load(), available = written - read_;
  if (available > capacity_) return Impossible("write", written, read_, capacity_);
  return available;
}

std::array<RingReader::Piece, 2> RingReader::Peek(size_t n) const {
  const size_t at = read_ & (capacity_ - 1), first = std::min(n, capacity_ - at);
  return {Piece{data_ + at, first}, Piece{data_, n - first}};
}

void RingReader::Read(uint8_t* bytes, size_t n) {
  for (const Piece& piece : Peek(n)) {
    CopyOnce(bytes, piece.data, piece.size);
    bytes += piece.size;
  }
  Skip(n);
}

bool RingReader::Publish() {
  control_->read.store(read_);
  // The writer is woken once half of the ring is free. Woken for every few bytes, it would copy
  // little and sleep again.
  if (control_->written.load() - read_ > capacity_ / 2) return false;
  return Take(&control_->writer_waits);
}

}  // namespace sluice
