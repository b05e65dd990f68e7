// Deduplicates the keys of a batch on a GPU (CUB sort and unique). Keys, unique keys and each key's
// number are in the caller's memory. Measures whether a GPU would pay: the worker deduplicates on
// the CPU (the client's KeyDeduplicator, which also groups keys by shard).
//
// Thread safety: one thread.
//
// Only plain types, because nvcc also compiles this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice::bench {

class GpuDedup {
 public:
  // Allocates for n keys on device 0. Null without a device, memory, or CUDA in the build.
  static std::unique_ptr<GpuDedup> Create(size_t n);
  virtual ~GpuDedup() = default;
  // unique: [n], ascending; number: [n], number[i] is the index of keys[i] in `unique`. Returns the
  // number of unique keys, 0 when the device failed.
  virtual size_t Run(const uint64_t* keys, uint64_t* unique, uint32_t* number) = 0;
  // Does only the copies of a Run that found `count` unique keys.
  virtual bool Copy(size_t count) = 0;
};

}  // namespace sluice::bench
