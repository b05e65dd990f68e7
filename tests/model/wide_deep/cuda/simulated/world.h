// The simulated devices of this process, as SIMULATED_CUDA says:
//
//   devices=N     so many (default 1)
//   pace=late     or at_once, any_order (streams.h)
//   seed=N        of any_order
//   memory_mb=N   of each device (default 4096)
//   host=N        whose devices they are: workers of different hosts do not share them (default 0)
//   breaks=N      after so many calls every call fails, as after an illegal address
//   work=off      kernels, products and copies take no time and leave zeros, and memory is not
//                 guarded: what is left of a job's time is the host's
//
// Thread safety: safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>

#include "tests/model/wide_deep/cuda/simulated/memory.h"
#include "tests/model/wide_deep/cuda/simulated/streams.h"

namespace sluice::cuda::simulated {

class World {
 public:
  static World& Get();

  int devices() const { return devices_; }
  uint32_t host() const { return host_; }
  bool works() const { return works_; }
  Memory& memory() { return memory_; }
  Streams& streams() { return streams_; }
  // Streams, events, graphs and handles of cuBLAS that somebody holds.
  std::atomic<int>& handles() { return handles_; }

  // An asynchronous copy from or to this address of the host has been put on a stream.
  bool Copied(const void* host) {
    std::lock_guard<std::mutex> lock(mutex_);
    return copied_.count(host) > 0;
  }
  void AddCopy(const void* host) {
    std::lock_guard<std::mutex> lock(mutex_);
    copied_.insert(host);
  }
  // Forgets all copies. An address that was freed may be handed out again.
  void ForgetCopies() {
    const std::lock_guard<std::mutex> lock(mutex_);
    copied_.clear();
  }

  // Calls of the runtime that may fail, so far.
  uint64_t calls() const { return calls_; }
  // The n-th of those from now on, counted from 0, fails; alone, but a launch that fails is
  // followed by launches that fail, as where kernels cannot be loaded.
  void FailCall(uint64_t n) {
    failing_ = calls_ + n;
    launches_fail_ = false;
  }
  // Counts a call; true: it fails.
  bool Fails() {
    const uint64_t call = calls_++;
    return call == failing_ || call >= breaks_;
  }
  bool LaunchFails() {
    if (Fails()) launches_fail_ = true;
    return launches_fail_;
  }

 private:
  struct Options;
  explicit World(const Options& options);

  const int devices_;
  const uint32_t host_;
  const bool works_;
  Memory memory_;
  Streams streams_;
  std::mutex mutex_;
  std::set<const void*> copied_;
  std::atomic<int> handles_{0};
  std::atomic<uint64_t> calls_{0}, failing_{UINT64_MAX};
  const uint64_t breaks_;
  std::atomic<bool> launches_fail_{false};
};

}  // namespace sluice::cuda::simulated
