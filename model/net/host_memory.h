// Host memory for the rows and gradients of a step.
//
// It is pinned when the network computes on a device, so that rows and gradients are copied between
// it and the device without another copy on the host.
//
// Thread safety: one thread. HostMemory is safe from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace sluice {

class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // Null when no memory is left.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* block) = 0;
};

// Floats whose memory grows and never shrinks.
class HostArray {
 public:
  HostArray() = default;
  ~HostArray() { Clear(); }
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;

  // Resizes to `n` floats of any value. They are from `memory`, or from the process's memory when
  // `memory` is null or has none left.
  void Resize(size_t n, const std::shared_ptr<HostMemory>& memory) {
    if (n > capacity_) Grow(n + n / kHeadroom, memory);
    size_ = n;
  }
  // Frees the memory.
  void Clear() {
    if (memory_ != nullptr) {
      memory_->Free(data_);
    } else {
      delete[] data_;
    }
    data_ = nullptr;
    memory_ = nullptr;
    size_ = capacity_ = 0;
  }
  float* data() { return data_; }
  const float* data() const { return data_; }
  size_t size() const { return size_; }
  float* begin() { return data_; }
  float* end() { return data_ + size_; }

 private:
  // Grows by an eighth more than needed, because sizes vary a little from step to step.
  static constexpr size_t kHeadroom = 8;

  void Grow(size_t n, const std::shared_ptr<HostMemory>& memory) {
    Clear();
    if (memory != nullptr) data_ = static_cast<float*>(memory->Allocate(n * sizeof(float)));
    if (data_ != nullptr) {
      memory_ = memory;
    } else {
      data_ = new float[n];
    }
    capacity_ = n;
  }
  std::shared_ptr<HostMemory> memory_;  // null: the process's memory
  float* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace sluice
