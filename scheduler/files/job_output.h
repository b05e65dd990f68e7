// Writes the files of jobs (JobFolder). Each job has its own thread and its actions are written in
// order, so that neither decisions nor calls nor other jobs wait for a slow disk.
//
// Memory: one thread for each job between kStarted and kEnded, one for each end of a job of an
// earlier scheduler, and one for all jobs that end without having started. While a disk is slow,
// the batches of traces and curves that wait for it are bounded for each of these threads. Further
// ones are dropped, and a warning counts them. Everything else is few, and never dropped.
//
// Thread safety: safe. Callbacks run on the job's thread, or in Stop if the job had none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "scheduler/job/output_action.h"
#include "scheduler/job/thin_curve.h"

namespace sluice {

class JobFolder;

class JobOutput {
 public:
  struct Options {
    Env* env = nullptr;  // outlives the output
    std::string host;    // goes into the event file's name; traces use its clock
    // A folder of this host, for the files that grow and whose place is a store.
    std::string staging;
    // How long a job that an earlier scheduler began waits for that one to give the folder up.
    std::chrono::milliseconds folder_wait{30000};
    // How many batches of traces and curves (kTrace, kScalars) wait in a queue, and their bytes.
    size_t max_batches = 10'000;
    size_t max_batch_bytes = size_t{64} << 20;
    // While the place of a job's output does not answer at the job's end, the end is tried again,
    // after pauses that double up to the second. For a job that is done, whose model would be lost,
    // as long as the output lives; for others so long.
    std::chrono::milliseconds away_pause{1000}, longest_away_pause{30000};
    std::chrono::milliseconds away_wait{600'000};
    // The folder is ready: the job may write to it. May be null.
    std::function<void(const std::string& job_id)> on_begun;
    // Before that: the curves in the folder that the job continues. May be null.
    std::function<void(const std::string& job_id, const ThinCurves& earlier)> on_curves;
    // Called at most once per job, with the first error before its end.
    std::function<void(const std::string& job_id, absl::Status)> on_failed;
    // A file of the job, such as its curve or its trace, could not be written. The job continues.
    std::function<void(const std::string& job_id, const std::string& warning)> on_warning;
    // The checkpoint or export `made` is in force, or could not be put in force; the job continues
    // in any case. `warning` may be empty.
    std::function<void(const OutputAction& made, absl::Status, const std::string& warning)>
        on_checkpoint;
    // The job has ended, but the place of its output does not answer: `why`. Called at each try.
    std::function<void(const std::string& job_id, const absl::Status& why)> on_away;
    // The model is committed and result.json is written, or one of them failed. ABORTED: the result
    // can still be written, but an earlier scheduler of the job has the folder, or this output
    // stopped before the place answered.
    std::function<void(const std::string& job_id, absl::Status)> on_ended;
  };
  explicit JobOutput(Options options) : options_(std::move(options)) {}
  ~JobOutput() { Stop(); }

  // Writes what is queued, then ends the threads. Later actions are not written. Must not be called
  // from a callback.
  void Stop();

  // Without actions it only tries again to start the threads for which the system had no room.
  void Add(std::vector<OutputAction> actions);

 private:
  struct Queued {
    OutputAction action;
    size_t batch_bytes = 0;  // 0: it is no batch
  };
  // The thread of one job, or of all jobs that never started. Guarded by mutex_.
  struct Lane {
    std::deque<Queued> queue;
    size_t batches = 0, batch_bytes = 0;              // in the queue
    uint64_t dropped_traces = 0, dropped_curves = 0;  // batches that no warning has counted yet
    bool ends = false;                                // ends once the queue is empty
    bool ended = false;
    std::thread thread;
  };
  Lane* LaneOf(const OutputAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the threads of new lanes. Without a thread their actions wait for the next call.
  void StartThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues the action, or drops it when it is a batch for which there is no room.
  void Queue(OutputAction action, Lane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next action of the lane; none: the lane ends.
  std::optional<OutputAction> Next(Lane* lane);
  // Warns of the batches that were dropped, once no more of them wait or the job ends.
  void TellDropped(const OutputAction& written, Lane* lane);
  void JoinEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Lane* lane);
  // Waits a moment. False when it is `end`, or the output stops.
  bool Pause(std::chrono::steady_clock::time_point end);
  // Writes an action other than kEnded.
  void Write(const OutputAction& action, JobFolder* folder, bool* failed);
  void End(const OutputAction& action, std::unique_ptr<JobFolder> folder);
  // JobFolder::End, again while the place is away.
  absl::Status EndFolder(const OutputAction& action, JobFolder* folder);
  void PassOnWarnings(const std::string& job_id, JobFolder* folder);

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  bool without_thread_ ABSL_GUARDED_BY(mutex_) = false;  // a lane of lanes_
  // Lanes of jobs that have started and not ended; "": the lane of jobs that never started.
  std::map<std::string, Lane*> lane_of_job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
