#include "common/daemon/process_info.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace sluice {

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

const char* SluiceVersion() {
  // A build outside a git work tree has no commit to name.
  static constexpr bool kHasCommit = sizeof(SLUICE_COMMIT) > 1;
  return kHasCommit ? SLUICE_VERSION " (" SLUICE_COMMIT ")" : SLUICE_VERSION;
}

void QuietGrpc() { setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0); }

}  // namespace sluice
