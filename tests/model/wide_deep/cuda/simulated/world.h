// The simulated devices of this process. SIMULATED_CUDA describes them, as a list of options with
// commas between them:
//
//   devices=N     number of devices (default 1)
//   pace=PACE     late (default), at_once or any_order (streams.h)
//   seed=N        seed of any_order (default 1)
//   memory_mb=N   memory of each device (default 4096)
//   host=N        number of the host that has the devices, for device ids (default 0)
//   breaks=N      makes all calls after the first N fail, as after an illegal address
//   work=off      kernels, products and copies take no time and leave zeros, and memory is not
//                 guarded. The time of a job is then the time of its host code.
//
// Thread safety: safe from any thread.
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
  // The number of streams, events, graphs and cuBLAS handles that are not yet destroyed.
  std::atomic<int>& handles() { return handles_; }

  // True when an asynchronous copy from or to this host address has been put on a stream.
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

  // The number of calls so far that FailCall can make fail.
  uint64_t calls() const { return calls_; }
  // Makes the n-th such call from now on, counted from 0, fail. Later calls work, except that all
  // launches fail after a failed launch, as they do when kernels cannot be loaded.
  void FailCall(uint64_t n) {
    failing_ = calls_ + n;
    launches_fail_ = false;
  }
  // Counts a call. Returns true when the call must fail.
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
