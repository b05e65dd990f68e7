// Unique keys of a batch on a GPU: sort and unique (CUB), from keys in the caller's memory to
// unique keys and each key's number there. For the question whether it pays; the worker does it on
// the CPU (client's KeyDeduplicator, which also groups keys by shard).
//
// Thread safety: one thread. Plain types: compiled by nvcc too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice::bench {

class GpuDedup {
 public:
  // Room for n keys on device 0; null when there is no device, no memory, or no CUDA in the build.
  static std::unique_ptr<GpuDedup> Create(size_t n);
  virtual ~GpuDedup() = default;
  // unique: [n], ascending; number[i]: where keys[i] is in it, [n]. Returns how many there are, 0
  // when the device failed.
  virtual size_t Run(const uint64_t* keys, uint64_t* unique, uint32_t* number) = 0;
  // Only the copies of a Run that found `count` keys.
  virtual bool Copy(size_t count) = 0;
};

}  // namespace sluice::bench
