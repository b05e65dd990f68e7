// Assigns consecutive places in a block, each at a multiple of kAlignment.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>

namespace sluice::cuda {

constexpr size_t kAlignment = 256;

class Places {
 public:
  // The offset of a place for n elements of `bytes` bytes each.
  size_t Take(size_t n, size_t bytes) {
    const size_t at = end_;
    end_ = (end_ + n * bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  size_t end() const { return end_; }

 private:
  size_t end_ = 0;
};

}  // namespace sluice::cuda
