// Removes temporary files when this process ends, even by a signal (SIGINT, SIGTERM, SIGHUP,
// SIGPIPE).
//
// Thread safety: one instance per process, created and destroyed while no other thread runs. The
// signal handlers, which may run on any thread, read only constant fields.
#pragma once

#include <string>
#include <vector>

namespace sluice::cli {

class ExitCleanup {
 public:
  // A process that gets one of the signals removes `files` and ends with 128 + its number.
  explicit ExitCleanup(std::vector<std::string> files);
  ~ExitCleanup();
  ExitCleanup(const ExitCleanup&) = delete;
  ExitCleanup& operator=(const ExitCleanup&) = delete;

  // Removes the files. Async-signal-safe.
  void Remove() const;

 private:
  const std::vector<std::string> files_;
};

}  // namespace sluice::cli
