// How far a job's tables are filled from its initial model, and whether that should go on.
//
// Thread safety: safe. Counters are relaxed: a reader wants a figure, and nothing else follows from
// it.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice {

class LoadProgress {
 public:
  // Bytes of files that are to be read, and that have been.
  void Plan(uint64_t bytes) { planned_.fetch_add(bytes, std::memory_order_relaxed); }
  void Add(uint64_t bytes) { read_.fetch_add(bytes, std::memory_order_relaxed); }
  uint64_t planned() const { return planned_.load(std::memory_order_relaxed); }
  uint64_t read() const { return read_.load(std::memory_order_relaxed); }

  // The loading ends soon, with CANCELLED.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> planned_{0}, read_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace sluice
