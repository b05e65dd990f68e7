// Writes the files of jobs (JobFolder). Each job has its own thread and its actions are written in
// order, so that neither decisions nor calls nor other jobs wait for a slow disk.
//
// Memory: one thread for each job between kStarted and kEnded, one for each end of a job of an
// earlier scheduler, and one for all jobs that end without having started.
//
// Thread safety: safe. Callbacks run on the job's thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "scheduler/output_action.h"

namespace sluice {

class JobFolder;

class JobOutput {
 public:
  struct Options {
    Env* env = nullptr;  // outlives the output
    std::string host;    // goes into the event file's name; traces use its clock
    // How long a job that an earlier scheduler began waits for that one to give the folder up.
    std::chrono::milliseconds folder_wait{30000};
    // The folder is ready: the job may write to it. May be null.
    std::function<void(const std::string& job_id)> on_begun;
    // Called at most once per job, with the first error before its end.
    std::function<void(const std::string& job_id, absl::Status)> on_failed;
    // A file of the job, such as its curve or its trace, could not be written. The job continues.
    std::function<void(const std::string& job_id, const std::string& warning)> on_warning;
    // A checkpoint is in force, or could not be put in force; the job continues in any case.
    // `warning` may be empty.
    std::function<void(const std::string& job_id, uint64_t number, absl::Status,
                       const std::string& warning)>
        on_checkpoint;
    // The model is committed and result.json is written, or one of them failed. ABORTED: the result
    // can still be written, but an earlier scheduler of the job has the folder.
    std::function<void(const std::string& job_id, absl::Status)> on_ended;
  };
  explicit JobOutput(Options options) : options_(std::move(options)) {}
  ~JobOutput() { Stop(); }

  // Writes what is queued, then ends the threads. Later actions are not written. Must not be called
  // from a callback.
  void Stop();

  void Add(std::vector<OutputAction> actions);

 private:
  // The thread of one job, or of all jobs that never started. Guarded by mutex_.
  struct Lane {
    std::deque<OutputAction> queue;
    bool ends = false;  // ends once the queue is empty
    bool ended = false;
    std::thread thread;
  };
  Lane* LaneOf(const OutputAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JoinEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Lane* lane);
  // Waits a moment. False when it is `end`, or the output stops.
  bool Pause(std::chrono::steady_clock::time_point end);
  // Writes an action other than kEnded.
  void Write(const OutputAction& action, JobFolder* folder, bool* failed);
  void End(const OutputAction& action, std::unique_ptr<JobFolder> folder);
  void PassOnWarnings(const std::string& job_id, JobFolder* folder);

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  // Lanes of jobs that have started and not ended; "": the lane of jobs that never started.
  std::map<std::string, Lane*> lane_of_job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
