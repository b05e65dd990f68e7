// Removes temporary files and kills child processes when this process ends, even by a signal
// (SIGINT, SIGTERM, SIGHUP, SIGPIPE).
//
// Thread safety: one instance per process, created and used by the process's only thread. The
// signal handlers read only constant or atomic fields.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

namespace sluice::cli {

class ExitCleanup {
 public:
  // Remove will delete `files`, then the empty `folder` ("" for none), and kill up to
  // `most_children` children. In a forked child, this instance replaces the parent's. A process
  // that gets one of the signals exits with code 128 + the signal's number.
  ExitCleanup(std::vector<std::string> files, std::string folder, size_t most_children);
  ~ExitCleanup();
  ExitCleanup(const ExitCleanup&) = delete;
  ExitCleanup& operator=(const ExitCleanup&) = delete;

  // Registers child `index`, which Remove kills. A `pid` of 0 means that the child has ended.
  void SetChild(size_t index, pid_t pid) { children_[index] = pid; }
  // Kills the children and removes the files and the folder. Async-signal-safe.
  void Remove();

 private:
  const std::vector<std::string> files_;
  const std::string folder_;
  // Lock-free atomics, because the signal handler reads them.
  std::vector<std::atomic<pid_t>> children_;
};

}  // namespace sluice::cli
