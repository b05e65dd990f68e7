// Handles the signals of a user to a command that runs a job. The first one asks for the end of the
// job, which may take its time for a last checkpoint. A second one says what is left of the job and
// ends the process at once; a third one ends it even if that hangs.
//
// REQUIRES: StopSignal::Install was called before any thread started. One object in the life of a
// process.
//
// Thread safety: safe from any thread, except where said.
#pragma once

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace sluice::cli {

class Interruption {
 public:
  // `save_grace`: how long the last checkpoint may take, on top of the time that StopSignal gives.
  // `live`: standard output may hold a line without its end, which is ended first.
  Interruption(absl::Duration save_grace, bool live);
  // The second signal has the effect said above until here.
  // REQUIRES: End has returned.
  ~Interruption();

  // The first signal has come.
  bool came() const { return came_; }
  // The folder of the job's newest checkpoint; empty: none.
  void SetCheckpoint(std::string folder);
  // The job has ended, and this is its exit code. Returns that of the process: 129, 130 or 143 when
  // a signal came first. One thread.
  int End(int job_code);

 private:
  // Runs on thread_, the only one that does not block a second and third signal.
  void Watch();
  [[noreturn]] void EndAtOnce();

  const absl::Duration save_grace_;
  const bool live_;
  std::atomic<bool> came_{false};  // flags only; they guard no data
  std::atomic<bool> over_{false};  // the object goes away
  std::promise<int> code_;
  Mutex mutex_;
  std::string checkpoint_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice::cli
