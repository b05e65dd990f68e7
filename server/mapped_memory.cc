#include "server/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace sluice {
namespace {

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

uint8_t* Map(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return static_cast<uint8_t*>(at);
}

}  // namespace

MappedMemory::MappedMemory(size_t bytes, bool huge) {
  if (bytes < kHugePage) {
    size_ = RoundUp(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    data_ = Map(size_);
    return;
  }
  size_ = RoundUp(bytes, kHugePage);
  uint8_t* all = Map(size_ + kHugePage);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(all) % kHugePage) % kHugePage;
  data_ = all + before;
  if (before > 0) munmap(all, before);
  munmap(data_ + size_, kHugePage - before);
  // A refusal costs only speed.
  if (huge) (void)madvise(data_, size_, MADV_HUGEPAGE);
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedMemory::Release(size_t begin, size_t end) {
  // The mapping is ours and private: this cannot fail, and a refusal would cost only memory.
  (void)madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace sluice
