#include "tests/model/wide_deep/cuda/simulated/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace sluice::cuda::simulated {
namespace {

// The first kFirstStreaks streaks close the memory, later only one in kStreaks does.
constexpr uint64_t kFirstStreaks = 16, kStreaks = 64;

size_t Page() {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return page;
}

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

constexpr size_t kGarbage = size_t{4} << 20;

// Returns a file with kGarbage bytes of garbage.
int Garbage() {
  static const int file = [] {
    const int made = memfd_create("garbage", MFD_CLOEXEC);
    const std::vector<char> garbage(kGarbage, static_cast<char>(0xFF));
    if (write(made, garbage.data(), kGarbage) != static_cast<ssize_t>(kGarbage)) std::abort();
    return made;
  }();
  return file;
}

// Maps copies of the garbage file over [at, at + bytes).
void FillWithGarbage(char* at, size_t bytes) {
  for (size_t done = 0; done < bytes; done += kGarbage) {
    if (mmap(at + done, std::min(kGarbage, bytes - done), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, Garbage(), 0) == MAP_FAILED) {
      std::abort();
    }
  }
}

}  // namespace

void Memory::Protect(const Block& block, int protection) {
  if (mprotect(block.mapped + Page(), block.mapped_bytes - 2 * Page(), protection) != 0)
    std::abort();
}

void* Memory::Allocate(MemoryKind kind, int device, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (kind == MemoryKind::kDevice && bytes > bytes_of_a_device_ - used_[device]) return nullptr;
  const size_t inner = RoundUp(bytes > 0 ? bytes : 1, Page()), whole = inner + 2 * Page();
  void* const mapped =
      mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const Block block = {kind, device, bytes, static_cast<char*>(mapped), whole};
  Protect(block, PROT_READ | PROT_WRITE);
  if (guarded_) FillWithGarbage(block.mapped + Page(), inner);
  if (kind == MemoryKind::kDevice) {
    used_[device] += bytes;
    if (closed_) Protect(block, PROT_NONE);
  }
  ++allocations_;
  char* const begin = block.mapped + Page() + inner - RoundUp(bytes > 0 ? bytes : 1, kAlignment);
  blocks_.emplace(reinterpret_cast<uintptr_t>(begin), block);
  return begin;
}

bool Memory::Free(MemoryKind kind, void* at) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = blocks_.find(reinterpret_cast<uintptr_t>(at));
  if (it == blocks_.end() || it->second.kind != kind) return false;
  const Block& block = it->second;
  if (kind == MemoryKind::kDevice) used_[block.device] -= block.bytes;
  munmap(block.mapped, block.mapped_bytes);
  blocks_.erase(it);
  return true;
}

const std::pair<const uintptr_t, Memory::Block>* Memory::Find(const void* at) const {
  const auto it = blocks_.upper_bound(reinterpret_cast<uintptr_t>(at));
  return it == blocks_.begin() ? nullptr : &*std::prev(it);
}

bool Memory::Holds(MemoryKind kind, int device, const void* at, size_t bytes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto* const found = Find(at);
  if (found == nullptr) return false;
  const Block& block = found->second;
  const size_t offset = reinterpret_cast<uintptr_t>(at) - found->first;
  return block.kind == kind && (kind == MemoryKind::kPinned || block.device == device) &&
         offset <= block.bytes && bytes <= block.bytes - offset;
}

bool Memory::Knows(const void* at) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto* const found = Find(at);
  return found != nullptr && reinterpret_cast<uintptr_t>(at) - found->first < found->second.bytes;
}

size_t Memory::used(int device) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = used_.find(device);
  return it == used_.end() ? 0 : it->second;
}

uint64_t Memory::allocations() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return allocations_;
}

size_t Memory::blocks(MemoryKind kind) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::count_if(blocks_.begin(), blocks_.end(),
                       [kind](const auto& block) { return block.second.kind == kind; });
}

void Memory::ProtectAll(int protection) {
  for (const auto& [at, block] : blocks_) {
    if (block.kind == MemoryKind::kDevice) Protect(block, protection);
  }
}

void Memory::Open() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) ProtectAll(PROT_READ | PROT_WRITE);
  closed_ = false;
}

void Memory::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!guarded_ || (++streaks_ > kFirstStreaks && streaks_ % kStreaks != 0)) return;
  ProtectAll(PROT_NONE);
  closed_ = true;
}

}  // namespace sluice::cuda::simulated
