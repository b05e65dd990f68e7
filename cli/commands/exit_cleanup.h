// Removes unfinished files when this process ends, even by a signal (SIGINT, SIGTERM, SIGHUP,
// SIGPIPE).
//
// Signals that were ignored before stay ignored (nohup, trap '' INT).
//
// Thread safety: one instance per process, created and destroyed while no other thread runs; Made
// from any thread. The signal handlers, which may run on any thread, read only constant fields and
// atomics.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::cli {

class ExitCleanup {
 public:
  // A process that gets one of the signals removes `files` and ends with 128 + its number.
  explicit ExitCleanup(std::vector<std::string> files) : ExitCleanup(std::move(files), {}, "") {}
  // The same for several files that belong together: those of `outputs` that this process has made
  // (Made) are removed too, and then `folder`, if it is empty ("": none), unless Keep was called.
  ExitCleanup(std::vector<std::string> files, std::vector<std::string> outputs, std::string folder);
  ~ExitCleanup();
  ExitCleanup(const ExitCleanup&) = delete;
  ExitCleanup& operator=(const ExitCleanup&) = delete;

  // outputs[i] is complete.
  void Made(size_t i) { made_[i] = true; }
  // All outputs are complete, and stay.
  void Keep() { kept_ = true; }
  // Removes the files. Async-signal-safe.
  void Remove() const;

 private:
  const std::vector<std::string> files_, outputs_;
  const std::string folder_;
  const std::unique_ptr<std::atomic<bool>[]> made_;  // [outputs_.size()]
  std::atomic<bool> kept_{false};
};

}  // namespace sluice::cli
