#include "common/daemon/passive_threads.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace sluice {

void UsePassiveThreads(char** argv) {
  constexpr char kVariable[] = "OMP_WAIT_POLICY";
  if (std::getenv(kVariable) != nullptr || setenv(kVariable, "passive", 1) != 0) return;
  // Start the program by its path: started as /proc/self/exe, the process would be named "exe".
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
  if (size < 0) return;
  path[size] = '\0';
  execv(path, argv);
}

}  // namespace sluice
