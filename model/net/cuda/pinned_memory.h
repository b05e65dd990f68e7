// Pinned host memory, into which callers pull values and from which they push gradients.
//
// It may outlive the network.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/base/mutex.h"
#include "model/net/host_memory.h"

namespace sluice::cuda {

class PinnedMemory : public HostMemory {
 public:
  // `ordinal` is the device that copies from and to the memory.
  explicit PinnedMemory(int ordinal) : ordinal_(ordinal) {}

  void* Allocate(size_t bytes) override;
  void Free(void* block) override;
  // Whether all of [at, at + bytes) is in one block.
  bool Holds(const void* at, size_t bytes) const;

 private:
  const int ordinal_;
  mutable Mutex mutex_;
  std::map<uintptr_t, size_t> blocks_ ABSL_GUARDED_BY(mutex_);  // bytes by address
};

}  // namespace sluice::cuda
