// Blocks of device memory within a bound, and of pinned host memory. They grow, or are given back
// whole; growing loses the contents and the address.
//
// Thread safety: one thread, on the device they belong to; DeviceMemory::used from any.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::cuda {

// What one network may hold of a device.
class DeviceMemory {
 public:
  // device: "cuda:0", for messages.
  DeviceMemory(std::string device, size_t limit) : device_(std::move(device)), limit_(limit) {}
  size_t limit() const { return limit_; }
  // Relaxed: a figure for metrics, nothing is read through it.
  size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class DeviceBlock;
  const std::string device_;
  const size_t limit_;
  std::atomic<size_t> used_{0};
};

class DeviceBlock {
 public:
  // what: "work memory", and advice, what to lower when memory is out: for messages, literals.
  // `memory` outlives the block.
  DeviceBlock(DeviceMemory* memory, const char* what, const char* advice = "train.batch_size")
      : memory_(*memory), what_(what), advice_(advice) {}
  ~DeviceBlock();
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  // RESOURCE_EXHAUSTED beyond the bound or when the device has no more, naming both sizes; the
  // block then holds nothing. REQUIRES: no work in flight uses it.
  absl::Status Reserve(size_t bytes);
  // Holds nothing after. REQUIRES: as above.
  void Release();
  char* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  // Exchanges memory and contents. REQUIRES: of the same DeviceMemory.
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

  // REQUIRES: no work in flight uses it.
  absl::Status Reserve(size_t bytes);
  void Release();
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace sluice::cuda
