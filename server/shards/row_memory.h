// Bounds the rows of all tables by the memory that the process can still get, so that a job fails
// before the kernel ends the process.
//  Memory that the kernel gives as it is touched is not yet used when a row store takes it. A user
//  therefore announces what it will touch next. That counts as used until the user announces the
//  next piece. The kernel's figures are read anew when an eighth of what was left has been taken,
//  or after kFresh, whichever comes first.
//
// The reserve is kept for memory with other bounds, such as messages and buffered gradients. It is
// a sixteenth of the memory that the process could get at first, between 64 MiB and 2 GiB, but at
// most a quarter of it.
//
// Thread safety: safe from any thread. A User is guarded by its owner's lock. The mutex is taken
// last, under a shard's. The figures are read without it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice {

class RowMemory {
 public:
  static constexpr absl::Duration kFresh = absl::Milliseconds(100);

  // `available`: bytes that the process can still get; called on any thread. `clock` outlives this.
  RowMemory(Clock* clock, std::function<uint64_t()> available)
      : clock_(clock), available_(std::move(available)) {}

  class User {
   public:
    // `memory` may be null: there is no bound.
    explicit User(std::shared_ptr<RowMemory> memory) : memory_(std::move(memory)) {}
    ~User() { Touched(); }
    User(const User&) = delete;
    User& operator=(const User&) = delete;

    // Announces that the user will touch `bytes` more, and that it has touched all that it
    // announced before. False: the reserve would not be left, and nothing is announced.
    bool Take(uint64_t bytes);
    // Ends the announcement: its memory has been touched, or will not be.
    void Touched();
    // Says how much memory was available at the last reading, for messages.
    std::string Figures() const { return memory_ == nullptr ? "" : memory_->Figures(); }

   private:
    const std::shared_ptr<RowMemory> memory_;
    uint64_t announced_ = 0;
  };

  // Takes `bytes` that are touched at once, for something that may use half of the reserve. False:
  // there is not that much.
  bool TakeFromReserve(uint64_t bytes) { return Take(bytes, 2, nullptr); }

 private:
  // Takes `bytes` if they leave the reserve divided by `divisor`. `of_user`, which may be null,
  // holds the bytes that the user had announced; afterwards `bytes`, or 0 when nothing was taken.
  bool Take(uint64_t bytes, uint64_t divisor, uint64_t* of_user);
  // True when `bytes` more are at most 1 / `parts` of the room that is left.
  bool Fits(uint64_t bytes, uint64_t divisor, uint64_t parts) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Account(uint64_t bytes, uint64_t* of_user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(uint64_t available, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Figures();

  Clock* const clock_;
  const std::function<uint64_t()> available_;

  Mutex mutex_;
  uint64_t announced_ ABSL_GUARDED_BY(mutex_) = 0;  // by all users
  absl::Time read_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t reserve_ ABSL_GUARDED_BY(mutex_) = 0;         // set by the first reading
  uint64_t last_available_ ABSL_GUARDED_BY(mutex_) = 0;  // as read last
  uint64_t left_ ABSL_GUARDED_BY(mutex_) = 0;            // of it, without what was announced then
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;           // of left_, since then
};

}  // namespace sluice
