// Starts child processes and reports how they end.
//
// Thread safety: a ChildProcess belongs to one thread. Start it from the main thread: the kernel
// sends the parent-death signal when the thread that forked ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::cli {

struct ChildOptions {
  std::string name;                      // for messages: "pserver 1"
  std::vector<std::string> argv;         // argv[0] is the path of the binary
  std::string log_file;                  // stdout and stderr are appended here
  int output = -1;                       // they go into this file instead, borrowed; -1: none
  bool shows_output = false;             // stdout and stderr are those of this process instead
  std::vector<std::string> environment;  // "NAME=VALUE", in addition to that of this process
  bool detached = false;  // own session, outlives this process; otherwise it ends with it
  int input = -1;         // standard input, borrowed; -1 for /dev/null
  // Standard input is that of this process, whose process group it joins: only the group in the
  // foreground may read from a terminal. Ctrl-C there reaches both.
  bool interactive = false;
};

class ChildProcess {
 public:
  // Returns NOT_FOUND, INVALID_ARGUMENT or INTERNAL when the process cannot be started. The child
  // gets no SLUICE_* variables but those in the options: the others were meant for this process and
  // would override the cluster file.
  static absl::StatusOr<ChildProcess> Start(ChildOptions options);

  pid_t pid() const { return pid_; }
  const std::string& name() const { return options_.name; }
  const std::string& log_file() const { return options_.log_file; }
  // Whether the log has changed since the child was started. It keeps what earlier processes wrote.
  bool HasLogged() const;

  // Returns the wait status once the child has ended. Does not block.
  std::optional<int> Poll();
  void Signal(int signal);

 private:
  explicit ChildProcess(ChildOptions options) : options_(std::move(options)) {}
  ChildOptions options_;
  pid_t pid_ = -1;
  off_t log_bytes_ = 0;  // before the child was started
  std::optional<int> status_;
};

// "exited with code 2" or "was killed by signal 9 (Killed)".
std::string DescribeExit(int wait_status);

// The path of an executable as a shell finds it. NOT_FOUND: there is none.
absl::StatusOr<std::string> FindExecutable(const std::string& name);

// Folder of the running executable.
absl::StatusOr<std::string> ExecutableFolder();

}  // namespace sluice::cli
