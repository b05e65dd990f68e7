// What this process must not leave behind: files, a folder and child processes, removed and ended
// also by a signal that ends the process (SIGINT, SIGTERM, SIGHUP, SIGPIPE).
//
// Thread safety: one instance a process, made and used by its only thread; the handlers read what
// was there at construction.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

namespace sluice::cli {

class Leftovers {
 public:
  // Removes `files`, then the empty `folder` ("": none). Replaces the instance of the process that
  // forked this one. The process of a signal exits with code 128 + its number.
  Leftovers(std::vector<std::string> files, std::string folder, size_t most_children);
  ~Leftovers();
  Leftovers(const Leftovers&) = delete;
  Leftovers& operator=(const Leftovers&) = delete;

  // Child `index` runs, and is killed by Remove; 0: it has ended.
  void SetChild(size_t index, pid_t pid) { children_[index] = pid; }
  // Ends the children and removes what is there. Async-signal-safe.
  void Remove();

 private:
  const std::vector<std::string> files_;
  const std::string folder_;
  // Lock-free: the handler of the same thread reads them.
  std::vector<std::atomic<pid_t>> children_;
};

}  // namespace sluice::cli
