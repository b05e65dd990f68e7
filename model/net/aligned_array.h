// An array aligned to a cache line that loses its contents when it grows.
//
// Memory: grows and never shrinks; not initialized.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <type_traits>

namespace sluice {

template <typename T>
class AlignedArray {
  static_assert(std::is_trivial_v<T>);

 public:
  static constexpr size_t kAlignment = 64;

  void Reserve(size_t n) {
    if (n <= capacity_) return;
    const size_t bytes = (n * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset();
    data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
    if (data_ == nullptr) std::abort();
    capacity_ = n;
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t capacity_ = 0;
};

}  // namespace sluice
