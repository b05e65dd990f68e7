// Zeroed memory straight from the kernel, for arrays that live long and may be large.
//
// Memory: whole pages, given by the kernel as they are touched; from 2 MiB on aligned to 2 MiB.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

class MappedMemory {
 public:
  static constexpr size_t kHugePage = 2 << 20;
  // kSmall: 4 KiB at a touch, 1 to 2 us. kHuge: 2 MiB at a touch where the kernel has them, 0.4 ms
  // and at times 40.
  enum class Pages { kSmall, kHuge };

  MappedMemory() = default;
  // Throws bad_alloc when the kernel refuses.
  MappedMemory(size_t bytes, Pages pages);
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept { *this = static_cast<MappedMemory&&>(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // The bytes [begin, end) may become huge pages: the kernel copies them to some, one day. For
  // small pages that are in use. REQUIRES: begin and end are multiples of the page size, end at
  // most size().
  void AllowHuge(size_t begin, size_t end);
  // Puts the memory of `page` in the place of [begin, begin + kHugePage), whose contents are lost,
  // without a copy. False, and nothing has changed, when the kernel refuses. REQUIRES: begin is a
  // multiple of kHugePage, begin + kHugePage at most size(); page.size() is kHugePage.
  bool Replace(size_t begin, MappedMemory page);
  // Cuts the first kHugePage bytes off: this begins behind them. REQUIRES: size() is more.
  MappedMemory TakeFront();

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
