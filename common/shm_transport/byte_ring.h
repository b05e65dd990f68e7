// A ring of bytes in shared memory, with one writer and one reader in different processes.
//
// Positions count the bytes since the beginning, so `written - read` bytes lie in the ring. Each
// end keeps its own position and reads only the other's from the memory. The other process may
// write anything there at any time: each end checks that the other's position is possible, and the
// reader copies bytes out, or whoever gets them from Peek does.
//
// Sleeping: an end that finds nothing to do announces that it sleeps, looks once more, and then
// waits for a wake-up. The other end moves its position first and looks for the announcement after
// that. All four words are sequentially consistent, so the two stores and the two loads that follow
// them have one order: at least one end sees the other's store, and no wake-up is lost. The
// positions also order the bytes, for which acquire and release would do.
//
// Thread safety: each end belongs to one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace sluice {

// The words that both ends of a ring share. Those of the writer and those of the reader have cache
// lines of their own. All zero at first.
struct RingControl {
  alignas(64) std::atomic<uint64_t> written;
  std::atomic<uint32_t> writer_waits;  // for room
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint32_t> reader_sleeps;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes cannot share a lock");
static_assert(sizeof(RingControl) == 128, "both processes must agree on the layout");

// `data` has `capacity` bytes, a power of two; it and `control` outlive the ends.
class RingWriter {
 public:
  RingWriter(RingControl* control, uint8_t* data, size_t capacity)
      : control_(control), data_(data), capacity_(capacity) {}

  // The bytes that may be written now. DATA_LOSS: the reader's position is impossible.
  absl::StatusOr<size_t> Room() const;
  // Copies bytes into the ring, but does not show them to the reader.
  // REQUIRES: n <= the last Room() less what was written since.
  void Write(const uint8_t* bytes, size_t n);
  // Shows the reader what was written. True: the reader sleeps and must be woken.
  bool Publish();
  // Announces that this end waits for room. Room() must be looked at once more before waiting.
  void AnnounceWait() {
    // A store takes the line from the reader, who looks at it after every piece.
    if (control_->writer_waits.load() == 0) control_->writer_waits.store(1);
  }

 private:
  RingControl* const control_;
  uint8_t* const data_;
  const size_t capacity_;
  uint64_t written_ = 0;
};

class RingReader {
 public:
  RingReader(RingControl* control, const uint8_t* data, size_t capacity)
      : control_(control), data_(data), capacity_(capacity) {}

  // The bytes that can be read now. DATA_LOSS: the writer's position is impossible.
  absl::StatusOr<size_t> Available() const;
  // Copies bytes out of the ring, but does not yet give their room back.
  // REQUIRES: n <= the last Available() less what was read since.
  void Read(uint8_t* bytes, size_t n);
  // Where the next n bytes lie: those that wrap begin anew in the second piece, which is empty
  // otherwise. The writer cannot use their room before they are skipped, but nothing stops it from
  // changing them.
  // REQUIRES: as for Read.
  struct Piece {
    const uint8_t* data;
    size_t size;
  };
  std::array<Piece, 2> Peek(size_t n) const;
  // Goes on behind the next n bytes, but does not yet give their room back.
  // REQUIRES: as for Read.
  void Skip(size_t n) { read_ += n; }
  // Gives the room of what was read back. True: the writer waits for room and must be woken. A
  // writer is woken only once half of the ring is free, so that it is not woken for each piece; a
  // reader that goes on until the ring is empty always comes to that point.
  bool Publish();
  // Announces that this end sleeps. Available() must be looked at once more before sleeping.
  void AnnounceSleep() { control_->reader_sleeps.store(1); }
  void CancelSleep() {
    if (control_->reader_sleeps.load() != 0) control_->reader_sleeps.store(0);
  }

 private:
  RingControl* const control_;
  const uint8_t* const data_;
  const size_t capacity_;
  uint64_t read_ = 0;
};

}  // namespace sluice
