// Memory of the host for what a step reads and writes. Where the network computes on a device it is
// pinned: rows go up from there and gradients come down to it without a copy on the way.
//
// Thread safety: HostMemory from any thread; HostArray plain data.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace sluice {

class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // Null: none is left.
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

  // `n` floats of any value. Of `memory`, or of the process's when that is null or has none left.
  void Resize(size_t n, const std::shared_ptr<HostMemory>& memory) {
    if (n > capacity_) Grow(n + n / kHeadroom, memory);
    size_ = n;
  }
  // Holds nothing after.
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
  static constexpr size_t kHeadroom = 8;  // sizes differ a little from step to step

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
  std::shared_ptr<HostMemory> memory_;  // null: the process's
  float* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace sluice
