// A message whose bytes lie in memory that another process can still write, such as a ring in
// shared memory.
//
// Contract:
// - The bytes are there during the call that hands the message on, and not after it. Whoever keeps
//   bytes for longer copies them.
// - The bytes may change at any time. Each is read once, by CopyOnce, and only the copy is checked
//   and used: a value that was checked here could be another one when it is read again.
//
// Thread safety: immutable, but for what the other process writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "common/base/slice.h"

namespace sluice {

// Copies n bytes that may change meanwhile. Without the barrier, the compiler could read them again
// where the copy is used.
inline void CopyOnce(void* to, const void* from, size_t n) {
  if (n > 0) std::memcpy(to, from, n);
  asm volatile("" : : "r"(to) : "memory");
}

class LentMessage {
 public:
  explicit LentMessage(Message slices) : slices_(std::move(slices)) {}

  const Message& slices() const { return slices_; }
  size_t size() const { return MessageSize(slices_); }

  // Returns a message of this process's memory, in one slice.
  Message Copy() const {
    const size_t n = size();
    std::shared_ptr<uint8_t[]> copy(new uint8_t[n]);
    size_t at = 0;
    for (const Slice& slice : slices_) {
      CopyOnce(copy.get() + at, slice.data(), slice.size());
      at += slice.size();
    }
    const uint8_t* const bytes = copy.get();
    return {Slice(bytes, n, std::move(copy))};
  }

 private:
  const Message slices_;
};

}  // namespace sluice
