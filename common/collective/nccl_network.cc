#include "common/collective/nccl_network.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr char kVariable[] = "NCCL_SOCKET_IFNAME";
// Without "=", NCCL would also take other interfaces whose names begin like this.
constexpr char kLoopback[] = "=lo";

}  // namespace

NcclNetwork& NcclNetwork::OfProcess() {
  static auto* const network = new NcclNetwork;
  return *network;
}

absl::Status NcclNetwork::Prepare(bool one_host) {
  MutexLock lock(&mutex_);
  if (interface_ == Interface::kUndecided) {
    const char* const of_user = std::getenv(kVariable);
    interface_ = Interface::kOther;
    if (one_host && (of_user == nullptr || *of_user == '\0')) {
      // Other threads may read the environment meanwhile. glibc copies its table before it adds the
      // first new variable, and leaves the old one as it is.
      if (setenv(kVariable, kLoopback, /*overwrite=*/1) != 0) {
        interface_ = Interface::kUndecided;
        return absl::ResourceExhaustedError(
            absl::StrCat("cannot set ", kVariable, ": ", std::strerror(errno)));
      }
      interface_ = Interface::kLoopback;
    }
  }
  if (one_host || interface_ == Interface::kOther) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("NCCL of this worker listens on loopback only, because its first group was on "
                   "one host; restart the workers, or start them with ",
                   kVariable, " set to the interface between the hosts"));
}

}  // namespace sluice
