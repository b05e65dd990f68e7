// Device memory and pinned memory of the simulated devices.
//
// Invariants: New memory is full of garbage (NaN, indices far out of range). Each block lies
// between two pages that cannot be touched. At most kAlignment - 1 bytes lie between its end and
// the page after it. Device memory cannot be touched while it is closed, so host code that uses a
// device address crashes. Closing costs time for every page, so not every streak of work closes the
// memory. Freed memory cannot be touched.
//
// Memory: a page of garbage takes memory only once it is written.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace sluice::cuda::simulated {

constexpr size_t kAlignment = 256;

enum class MemoryKind { kDevice, kPinned };

class Memory {
 public:
  // `bytes_of_a_device` is the size of each device. Memory that is not guarded begins with zeros
  // and is never closed.
  Memory(size_t bytes_of_a_device, bool guarded)
      : bytes_of_a_device_(bytes_of_a_device), guarded_(guarded) {}

  // Returns null when the device or the host has no more memory.
  void* Allocate(MemoryKind kind, int device, size_t bytes);
  // Returns false when there is no such block.
  bool Free(MemoryKind kind, void* block);
  // True when [at, at + bytes) lies in one block of this kind, and for kDevice of this device.
  bool Holds(MemoryKind kind, int device, const void* at, size_t bytes) const;
  // True when `at` lies in any block.
  bool Knows(const void* at) const;
  size_t used(int device) const;
  size_t total() const { return bytes_of_a_device_; }
  uint64_t allocations() const;          // successful ones so far
  size_t blocks(MemoryKind kind) const;  // not yet freed

  // Call them around a streak of work, which may touch device memory.
  void Open();
  void Close();

 private:
  struct Block {
    MemoryKind kind;
    int device;
    size_t bytes;
    char* mapped;  // begins and ends with a guard page
    size_t mapped_bytes;
  };
  // Protects the pages between the guard pages.
  static void Protect(const Block& block, int protection);
  // Protects all device memory.
  void ProtectAll(int protection);
  const std::pair<const uintptr_t, Block>* Find(const void* at) const;

  const size_t bytes_of_a_device_;
  const bool guarded_;
  mutable std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;  // by address
  std::map<int, size_t> used_;         // by device
  bool closed_ = false;
  uint64_t streaks_ = 0;
  uint64_t allocations_ = 0;
};

}  // namespace sluice::cuda::simulated
