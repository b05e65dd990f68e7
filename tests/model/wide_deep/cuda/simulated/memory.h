// Device memory and pinned memory of the simulated devices.
//
// Invariants: new memory is full of garbage (NaN, indices far outside), a page of which takes room
// when it is written; a block ends at most kAlignment - 1 bytes before a page that cannot be
// touched, and begins behind another. Device memory cannot be touched while it is closed, so that
// the host's code crashes where it takes a device's address for its own; freed memory cannot be
// touched at all. Closing costs as much as all pages do: it happens after the first streaks of
// work, then now and then.
//
// Thread safety: safe.
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
  // bytes_of_a_device: what each has. Not guarded: full of zeros, and never closed.
  Memory(size_t bytes_of_a_device, bool guarded)
      : bytes_of_a_device_(bytes_of_a_device), guarded_(guarded) {}

  // Null: the device, or the host, has no more.
  void* Allocate(MemoryKind kind, int device, size_t bytes);
  // False: no such block.
  bool Free(MemoryKind kind, void* block);
  // All of [at, at + bytes) lies in one block of the kind. Of a device: of this one.
  bool Holds(MemoryKind kind, int device, const void* at, size_t bytes) const;
  // Pinned, or of a device.
  bool Knows(const void* at) const;
  size_t used(int device) const;
  size_t total() const { return bytes_of_a_device_; }
  uint64_t allocations() const;          // so far
  size_t blocks(MemoryKind kind) const;  // that are held

  // Around a streak of work, which may touch device memory.
  void Open();
  void Close();

 private:
  struct Block {
    MemoryKind kind;
    int device;
    size_t bytes;
    char* mapped;  // with a page before and one behind
    size_t mapped_bytes;
  };
  // Of what lies between the two pages.
  static void Protect(const Block& block, int protection);
  // All of device memory.
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
