// Splits a command in two: the command that the user waits for, and a background process.
//
// The background process does the work. The command passes signals on to it and ends when the
// process says so, or when it has ended. If the command is killed before, the process gets SIGTERM.
//
// Thread safety: one instance per process, used by its main thread. Create it before any thread
// starts.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace sluice::cli {

class BackgroundProcess {
 public:
  BackgroundProcess() = default;
  ~BackgroundProcess();
  BackgroundProcess(const BackgroundProcess&) = delete;
  BackgroundProcess& operator=(const BackgroundProcess&) = delete;

  // Forks. Returns nullopt in the background process. In the command, returns the exit code when it
  // must end: the result of Detach, or the code of a process that has ended before. An error
  // becomes the exit code kJobFailed and is printed.
  std::optional<int> Split();
  // To be called by the background process: lets the command end with `exit_code`. From now on what
  // this process prints is appended to `log_file`, and signals for the command do not reach it.
  // INVALID_ARGUMENT when the file cannot be written; nothing is changed then.
  absl::Status Detach(int exit_code, const std::string& log_file);

 private:
  int command_ = -1;  // pipe to the command; in the background process, until Detach
};

}  // namespace sluice::cli
