// Memory that processes of one host share, and that none of them can shrink.
//
// It has no name in any file system. One process creates it and sends its descriptor to the others
// (UnixConnection); the kernel frees it when the last one is gone, however they end.
//
// Invariants: the size is sealed, so access within it never raises SIGBUS. The other processes may
// write the memory at any time: whoever reads it copies a value before checking it.
//
// Thread safety: immutable. The bytes need their own synchronization.
//
// Source: memfd_create(2), fcntl(2) (file seals).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/shared_memory/file_descriptor.h"

namespace sluice {

class SealedMemory {
 public:
  // Zeros. `name` appears in /proc/PID/maps. `size` is above 0. RESOURCE_EXHAUSTED or UNAVAILABLE
  // when the kernel has none to give.
  static absl::StatusOr<SealedMemory> Create(const char* name, size_t size);
  // Maps memory that another process has created. INVALID_ARGUMENT when its size is not `size`, or
  // when it could still shrink.
  static absl::StatusOr<SealedMemory> Map(FileDescriptor fd, size_t size);

  SealedMemory() = default;
  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory& operator=(SealedMemory&& other) noexcept;
  ~SealedMemory();

  uint8_t* data() const { return data_; }  // aligned to a page
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  static absl::StatusOr<SealedMemory> MapWhole(FileDescriptor fd, size_t size);

  FileDescriptor fd_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
