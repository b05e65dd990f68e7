// Keeps NCCL of this process on the loopback interface while its groups are on one host.
//
// NCCL makes connections of its own, which are neither encrypted nor authenticated, and listens on
// an interface that it chooses. It reads the choice of the user, NCCL_SOCKET_IFNAME, when the
// process makes its first group, and never again. So the first group decides for the process: the
// variable is set to loopback when all of its ranks are on one host and the user has not set it.
//
// Thread safety: safe.
#pragma once

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace sluice {

class NcclNetwork {
 public:
  static NcclNetwork& OfProcess();

  // Call before the functions of NCCL that make a group. FAILED_PRECONDITION: the group has ranks
  // on several hosts, and an earlier one has bound NCCL to loopback.
  absl::Status Prepare(bool one_host);

 private:
  enum class Interface { kUndecided, kLoopback, kOther };

  Mutex mutex_;
  Interface interface_ ABSL_GUARDED_BY(mutex_) = Interface::kUndecided;
};

}  // namespace sluice
