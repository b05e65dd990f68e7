// Maps zeroed memory straight from the kernel, for large arrays that live long.
//
// Memory: whole pages, which the kernel gives as they are touched. Arrays of 2 MiB or more are
// aligned to 2 MiB.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

class MappedMemory {
 public:
  static constexpr size_t kHugePage = 2 << 20;
  // kSmall: a first touch maps 4 KiB and takes 1 to 2 us.
  // kHuge: a first touch maps 2 MiB, if the kernel has such a page, and takes 0.4 ms, sometimes 40.
  enum class Pages { kSmall, kHuge };

  MappedMemory() = default;
  // Throws bad_alloc when the kernel refuses.
  MappedMemory(size_t bytes, Pages pages);
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept { *this = static_cast<MappedMemory&&>(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Allows the kernel to merge the small pages of [begin, end) into huge pages later.
  // REQUIRES: begin and end are multiples of the page size, end at most size().
  void AllowHuge(size_t begin, size_t end);
  // Replaces [begin, begin + kHugePage) by the memory of `page`, without a copy; the old contents
  // are lost. Returns false, with nothing changed, when the kernel refuses.
  // REQUIRES: begin is a multiple of kHugePage, begin + kHugePage at most size(); page.size() is
  // kHugePage.
  bool Replace(size_t begin, MappedMemory page);
  // Splits off the first kHugePage bytes and returns them; the object then starts after them.
  // REQUIRES: size() > kHugePage.
  MappedMemory TakeFront();

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
