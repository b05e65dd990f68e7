// Counts what a process has asked of a place since it began.
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace sluice {

// All relaxed: the figures are for people, and each stands for itself.
struct PlaceUse {
  std::atomic<uint64_t> requests{0};    // sent, each try counted
  std::atomic<uint64_t> retries{0};     // those of them that followed a failed one
  std::atomic<uint64_t> bytes{0};       // of the bodies of answers
  std::atomic<uint64_t> bytes_sent{0};  // of the bodies of requests, each try counted
  std::atomic<int64_t> nanoseconds{0};  // of all requests together, those of one time added up

  double seconds() const {
    return static_cast<double>(nanoseconds.load(std::memory_order_relaxed)) * 1e-9;
  }
};

}  // namespace sluice
