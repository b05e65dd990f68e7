// Counts the bytes that all streams of a process hold for one purpose, against a bound.
//
// Thread safety: safe from any thread. The count is relaxed: it is a sum, which orders nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice {

class ByteBudget {
 public:
  explicit ByteBudget(size_t max = SIZE_MAX) : max_(max) {}

  // Counts bytes that are held already. False: more than the bound are held now.
  bool Add(size_t bytes) {
    return bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= max_;
  }
  // Counts the bytes if the bound allows it, or if none are held: otherwise a small bound would
  // keep everybody waiting for ever.
  bool TryAdd(size_t bytes) {
    const size_t held = bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (held == 0 || held + bytes <= max_) return true;
    Sub(bytes);
    return false;
  }
  void Sub(size_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  bool exceeded() const { return bytes() > max_; }
  size_t max() const { return max_; }

 private:
  const size_t max_;
  alignas(64) std::atomic<size_t> bytes_{0};  // a cache line of its own: every message changes it
};

}  // namespace sluice
