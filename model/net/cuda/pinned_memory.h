// Pinned host memory that others hold: values that they pull into it, gradients that they push out
// of it.
//
// Invariants: it may outlive the network. Thread safety: safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/base/mutex.h"
#include "model/net/host_memory.h"

namespace sluice::cuda {

class PinnedMemory : public HostMemory {
 public:
  // ordinal: the device that copies from and to it.
  explicit PinnedMemory(int ordinal) : ordinal_(ordinal) {}

  void* Allocate(size_t bytes) override;
  void Free(void* block) override;
  // All of [at, at + bytes) lies in one block.
  bool Holds(const void* at, size_t bytes) const;

 private:
  const int ordinal_;
  mutable Mutex mutex_;
  std::map<uintptr_t, size_t> blocks_ ABSL_GUARDED_BY(mutex_);  // bytes by address
};

}  // namespace sluice::cuda
