#include "common/shared_memory/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// Shrinking would kill the other process with SIGBUS, and growing it would waste its memory. The
// last seal keeps these as they are.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status MemoryFailed(const char* operation, size_t size) {
  return absl::ErrnoToStatus(errno, absl::StrCat("shared memory of ", size, " bytes: ", operation));
}

}  // namespace

absl::StatusOr<SealedMemory> SealedMemory::Create(const char* name, size_t size) {
  FileDescriptor fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return MemoryFailed("memfd_create", size);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return MemoryFailed("ftruncate", size);
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return MemoryFailed("seal", size);
  return MapWhole(std::move(fd), size);
}

absl::StatusOr<SealedMemory> SealedMemory::Map(FileDescriptor fd, size_t size) {
  // Seals first: before they are known, the size below could change again.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError(
        "the peer's shared memory is not sealed, so it could be shrunk while it is read");
  }
  struct stat stat;
  if (fstat(fd.get(), &stat) != 0) return MemoryFailed("fstat", size);
  // Offsets are computed from the agreed size, so a smaller memory would be read beyond its end.
  if (static_cast<uint64_t>(stat.st_size) != size) {
    return absl::InvalidArgumentError(absl::StrCat("the peer's shared memory has ", stat.st_size,
                                                   " bytes, but ", size, " were agreed"));
  }
  return MapWhole(std::move(fd), size);
}

absl::StatusOr<SealedMemory> SealedMemory::MapWhole(FileDescriptor fd, size_t size) {
  void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return MemoryFailed("mmap", size);
  SealedMemory memory;
  memory.fd_ = std::move(fd);
  memory.data_ = static_cast<uint8_t*>(data);
  memory.size_ = size;
  return memory;
}

SealedMemory::SealedMemory(SealedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SealedMemory& SealedMemory::operator=(SealedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SealedMemory::~SealedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace sluice
