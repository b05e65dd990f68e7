// Counts the bytes that all streams of a process hold for one purpose, against a bound, and against
// the memory that the process can still get.
//
// Thread safety: safe from any thread. The count is relaxed: it is a sum, which orders nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "common/base/mutex.h"

namespace sluice {

class ByteBudget {
 public:
  // Memory is asked for in pieces of this many bytes.
  static constexpr size_t kPiece = size_t{4} << 20;
  // Takes so many bytes, which are touched at once. False: the process has not that much left.
  using TakeMemory = std::function<bool(size_t bytes)>;

  // `take` may be null: only the bound counts. It is called from any thread, one at a time, for
  // each piece that is held in addition, and not told when less is held: that shows in what is
  // free.
  explicit ByteBudget(size_t max = SIZE_MAX, TakeMemory take = nullptr)
      : bound_(max), take_(std::move(take)), max_(max) {}

  // Counts bytes that are held already. False: more than max() are held now.
  bool Add(size_t bytes) {
    return Fits(bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  }
  // Counts the bytes if max() allows it, or if none are held: otherwise a small bound would keep
  // everybody waiting for ever.
  bool TryAdd(size_t bytes) {
    const size_t held = bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (held == 0 || Fits(held + bytes)) return true;
    Sub(bytes);
    return false;
  }
  void Sub(size_t bytes) {
    const size_t held = bytes_.fetch_sub(bytes, std::memory_order_relaxed) - bytes;
    if (paid_.load(std::memory_order_relaxed) > held + 2 * kPiece) Lower();
  }

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // The bound, or what the memory has allowed if that is less.
  size_t max() const { return max_.load(std::memory_order_relaxed); }

 private:
  bool Fits(size_t held) {
    if (held > bound_) return false;
    return take_ == nullptr || held <= paid_.load(std::memory_order_relaxed) || Pay(held);
  }
  // Takes the pieces that `held` needs.
  bool Pay(size_t held) {
    MutexLock lock(&mutex_);
    size_t paid = paid_.load(std::memory_order_relaxed);
    while (paid < held && take_(kPiece)) paid += kPiece;
    paid_.store(paid, std::memory_order_relaxed);
    max_.store(paid < held ? std::min(bound_, paid) : bound_, std::memory_order_relaxed);
    return paid >= held;
  }
  // Bytes that were given back must be paid for again. An Add at the same moment may still see the
  // old amount; the next Add then takes the missing pieces.
  void Lower() {
    MutexLock lock(&mutex_);
    const size_t paid = bytes() + kPiece;
    if (paid_.load(std::memory_order_relaxed) > paid) paid_.store(paid, std::memory_order_relaxed);
    max_.store(bound_, std::memory_order_relaxed);
  }

  const size_t bound_;
  const TakeMemory take_;
  Mutex mutex_;  // held while memory is taken; orders the writers of the next two
  std::atomic<size_t> max_, paid_{0};
  alignas(64) std::atomic<size_t> bytes_{0};  // a cache line of its own: every message changes it
};

}  // namespace sluice
