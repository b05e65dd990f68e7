// Zeroed memory straight from the kernel, for arrays that live long and may be large.
//
// Memory: whole pages; from 2 MiB on aligned to and advised for transparent huge pages, which the
// kernel fills one at a time as they are touched (0.1 to 0.3 ms each). Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

class MappedMemory {
 public:
  static constexpr size_t kHugePage = 2 << 20;

  MappedMemory() = default;
  // Throws bad_alloc when the kernel refuses. `huge` false: small pages, whatever the size.
  explicit MappedMemory(size_t bytes, bool huge = true);
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept { *this = static_cast<MappedMemory&&>(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Gives the bytes [begin, end) back to the kernel: they read as 0 until written again. REQUIRES:
  // multiples of kHugePage within size().
  void Release(size_t begin, size_t end);

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
