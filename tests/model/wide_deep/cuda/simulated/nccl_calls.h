// Counts the calls to the simulated NCCL of this process that would open a socket of the real one.
//
// Thread safety: safe.
#pragma once

#include <string>

#include "common/base/mutex.h"

namespace sluice::cuda::simulated {

struct NcclCalls {
  static NcclCalls& Get() {
    static auto* const calls = new NcclCalls;
    return *calls;
  }
  int Ids() {
    MutexLock lock(&mutex);
    return ids;
  }
  int Groups() {
    MutexLock lock(&mutex);
    return groups;
  }
  std::string Interface() {
    MutexLock lock(&mutex);
    return interface;
  }

  Mutex mutex;
  int ids ABSL_GUARDED_BY(mutex) = 0;            // ncclGetUniqueId
  int groups ABSL_GUARDED_BY(mutex) = 0;         // ncclCommInitRankConfig
  std::string interface ABSL_GUARDED_BY(mutex);  // NCCL_SOCKET_IFNAME at the first of them
};

}  // namespace sluice::cuda::simulated
