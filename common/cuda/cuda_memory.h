// Blocks of device memory within a limit, and blocks of pinned host memory.
//
// A block grows, or is released as a whole. Growing loses the contents and the address.
//
// Thread safety: one thread, with the block's device current. DeviceMemory::used is safe from any
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::cuda {

// The device memory that one network may hold.
class DeviceMemory {
 public:
  // `device` is a name for messages, such as "cuda:0".
  DeviceMemory(std::string device, size_t limit) : device_(std::move(device)), limit_(limit) {}
  size_t limit() const { return limit_; }
  // Relaxed, because it is only a count: no other data is read depending on it.
  size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class DeviceBlock;
  const std::string device_;
  const size_t limit_;
  std::atomic<size_t> used_{0};
};

class DeviceBlock {
 public:
  // `what`, such as "work memory", and `advice`, the option to lower when memory runs out, are
  // literals for messages. `memory` outlives the block.
  DeviceBlock(DeviceMemory* memory, const char* what, const char* advice = "train.batch_size")
      : memory_(*memory), what_(what), advice_(advice) {}
  ~DeviceBlock();
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  // RESOURCE_EXHAUSTED, naming both sizes, beyond the limit or when the device has no more memory;
  // the block then holds nothing.
  // REQUIRES: no work in flight uses the block.
  absl::Status Reserve(size_t bytes);
  // Frees the memory.
  // REQUIRES: no work in flight uses the block.
  void Release();
  char* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  // Exchanges memory and contents.
  // REQUIRES: both blocks are of the same DeviceMemory.
  void Swap(DeviceBlock* other) {
    std::swap(data_, other->data_);
    std::swap(capacity_, other->capacity_);
  }

 private:
  DeviceMemory& memory_;
  const char* const what_;
  const char* const advice_;
  char* data_ = nullptr;
  size_t capacity_ = 0;
};

class PinnedBlock {
 public:
  PinnedBlock() = default;
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  // REQUIRES: no work in flight uses the block.
  absl::Status Reserve(size_t bytes);
  void Release();
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace sluice::cuda
