#include "server/shards/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace sluice {
namespace {

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

uint8_t* Map(size_t bytes) {
  // NORESERVE, because a store maps ahead of its growth, and only touched pages take memory.
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return static_cast<uint8_t*>(at);
}

}  // namespace

MappedMemory::MappedMemory(size_t bytes, Pages pages) {
  if (bytes < kHugePage) {
    size_ = RoundUp(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    data_ = Map(size_);
    return;
  }
  size_ = RoundUp(bytes, kHugePage);
  // mmap aligns to small pages only, so one huge page more is mapped and both ends are cut off.
  uint8_t* all = Map(size_ + kHugePage);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(all) % kHugePage) % kHugePage;
  data_ = all + before;
  if (before > 0) munmap(all, before);
  munmap(data_ + size_, kHugePage - before);
  // A refusal only costs speed, so the result is ignored.
  (void)madvise(data_, size_, pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedMemory::AllowHuge(size_t begin, size_t end) {
  if (end > begin) (void)madvise(data_ + begin, end - begin, MADV_HUGEPAGE);
}

bool MappedMemory::Replace(size_t begin, MappedMemory page) {
  // The kernel checks its limits before it unmaps the old pages, so a refusal changes nothing.
  if (mremap(page.data_, kHugePage, kHugePage, MREMAP_MAYMOVE | MREMAP_FIXED, data_ + begin) ==
      MAP_FAILED) {
    return false;
  }
  page.data_ = nullptr;
  return true;
}

MappedMemory MappedMemory::TakeFront() {
  MappedMemory front;
  front.data_ = data_;
  front.size_ = kHugePage;
  data_ += kHugePage;
  size_ -= kHugePage;
  return front;
}

}  // namespace sluice
