#include "common/daemon/process_info.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/boot_id.h"

namespace sluice {

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

double CpuSeconds() {
  rusage use = {};
  if (getrusage(RUSAGE_SELF, &use) != 0) return 0;
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
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

std::string ProcessSpace() {
  const std::string boot = BootId();
  char space[128] = "", host[256] = "";
  if (readlink("/proc/self/ns/pid", space, sizeof(space) - 1) <= 0 || boot.empty()) return "";
  // Clones of a running machine share its boot id but hardly its host name.
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, "/", boot, "/", space);
}

bool ProcessHasEnded(uint32_t pid) {
  if (pid == 0 || static_cast<pid_t>(pid) <= 0) return false;
  if (kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  // The process exists, but may be a zombie.
  // Format, proc(5): "pid (name) state ...". The name may hold any text, even ") ".
  std::ifstream in(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(in, line)) return false;
  const size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return false;
  const char state = line[name_end + 2];
  return state == 'Z' || state == 'X';
}

}  // namespace sluice
