#include "common/daemon/process_limits.h"

#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <future>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

void* AwaitEnd(void* end) {
  static_cast<std::shared_future<void>*>(end)->wait();
  return nullptr;
}

}  // namespace

void UsePassiveThreads(char** argv) {
  // OpenMP reads it before main begins, so the program has to start once more.
  constexpr char kVariable[] = "OMP_WAIT_POLICY";
  if (std::getenv(kVariable) != nullptr || setenv(kVariable, "passive", 1) != 0) return;
  // Start the program by its path: started as /proc/self/exe, the process would be named "exe".
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
  if (size < 0) return;
  path[size] = '\0';
  execv(path, argv);
}

absl::Status CheckThreadLimit(int threads) {
  threads = std::min(threads, kMostThreadsTried);
  std::promise<void> end;
  std::shared_future<void> ended = end.get_future().share();
  // All threads must live at the same time. pthreads allow a small stack, which keeps this cheap.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::max<size_t>(PTHREAD_STACK_MIN, 64 << 10));
  std::vector<pthread_t> started;
  int error = 0;
  while (error == 0 && static_cast<int>(started.size()) < threads) {
    pthread_t thread;
    error = pthread_create(&thread, &attributes, &AwaitEnd, &ended);
    if (error == 0) started.push_back(thread);
  }
  pthread_attr_destroy(&attributes);
  end.set_value();
  for (const pthread_t thread : started) pthread_join(thread, nullptr);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "only ", started.size(), " of the ", threads,
      " threads that are needed could be started: ", std::strerror(error),
      "; raise the limit of processes (ulimit -u, pids.max of the container) or of memory "
      "(ulimit -v), or start fewer workers and pservers"));
}

void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  // Without it the process continues with the limit that it has.
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace sluice
