// Processes that this one starts and answers for.
//
// Thread safety: a ChildProcess belongs to one thread. Start it from the main thread: the kernel
// sends the parent-death signal when the thread that forked ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::cli {

struct ChildOptions {
  std::string name;               // for messages: "pserver 1"
  std::vector<std::string> argv;  // argv[0] is the path of the binary
  std::string log_file;           // stdout and stderr are appended here
  bool detached = false;  // own session, lives on; else it gets SIGTERM when this process dies
  int input = -1;         // its standard input; -1: /dev/null. Borrowed
};

class ChildProcess {
 public:
  // NOT_FOUND or INTERNAL when it cannot be started. Variables SLUICE_* are not passed on: they
  // were meant for this process and would beat the cluster file.
  static absl::StatusOr<ChildProcess> Start(ChildOptions options);

  pid_t pid() const { return pid_; }
  const std::string& name() const { return options_.name; }
  const std::string& log_file() const { return options_.log_file; }

  // The wait status once it has ended. Does not wait.
  std::optional<int> Poll();
  // False when it still runs at the deadline.
  bool WaitUntil(absl::Time deadline);
  void Signal(int signal);

 private:
  explicit ChildProcess(ChildOptions options) : options_(std::move(options)) {}
  ChildOptions options_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

// "exited with code 2" or "was killed by signal 9 (Killed)".
std::string DescribeExit(int wait_status);

// The last `lines` lines, of at most the last 64 KiB; "" when there is no such file.
std::string TailOfFile(const std::string& path, int lines);

// Folder of the running executable.
absl::StatusOr<std::string> ExecutableFolder();

}  // namespace sluice::cli
