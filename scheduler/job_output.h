// Writes what jobs leave behind: OUTPUT_DIR/job.textproto at the start, the event file (those that
// an earlier job left there are removed), the trace, result.json at the end.
//
// The folder is locked meanwhile: a job of another scheduler that would write to it fails, and
// leaves it as it is. One thread writes, in the order of the actions, so that neither decisions nor
// calls wait for a disk. Thread safety: safe. Callbacks run on the writing thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/base/folder_lock.h"
#include "common/base/mutex.h"
#include "common/progress/event_file.h"
#include "scheduler/scheduler_core.h"
#include "scheduler/trace_file.h"

namespace sluice {

class JobOutput {
 public:
  struct Options {
    Env* env = nullptr;  // outlives the output
    std::string host;    // in the event file's name; traces have its clock
    // What failed before the end, once a job.
    std::function<void(const std::string& job_id, absl::Status)> on_failed;
    // The trace could not be gone on with: once a job, which goes on without.
    std::function<void(const std::string& job_id, absl::Status)> on_trace_failed;
    // result.json is written, or could not be.
    std::function<void(const std::string& job_id, absl::Status)> on_ended;
  };
  explicit JobOutput(Options options);
  ~JobOutput() { Stop(); }

  // Writes what is queued, then ends its thread; what comes later is not written. Not from a
  // callback.
  void Stop();

  void Add(std::vector<OutputAction> actions);

 private:
  struct Open {
    std::optional<FolderLock> folder;  // while the job writes to it
    bool taken = false;                // by a job of another scheduler
    std::unique_ptr<EventFile> events;
    std::unique_ptr<TraceFile> trace;  // null: none is asked for, or it could not be written
    bool failed = false;
  };
  void Loop();
  void Write(const OutputAction& action);
  absl::Status Begin(const OutputAction& action);
  absl::Status AddScalars(const OutputAction& action);
  void AddTrace(const OutputAction& action);
  absl::Status End(const OutputAction& action);

  const Options options_;
  std::map<std::string, Open> open_;  // by job, of the writing thread

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<OutputAction> queue_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice
