// Tells the process that started this command how the job goes (--progress_fd), and ends the job
// when that process has gone.
//
// Format: a pipe with one line of JSON for each status, as in `sluice status --json`; of the job's
// configuration it has only the name and the output folder. A slow reader misses statuses, but
// never the last one, unless it reads nothing for kPatience.
//
// Thread safety: one thread at a time. A thread of its own watches the reader.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

class ProgressStream {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  // Takes the writing end of a pipe, which children do not inherit from now on. When the reader
  // closes its end, this process gets SIGTERM, once. INVALID_ARGUMENT: `fd` is no such end.
  // REQUIRES: SIGPIPE is ignored, and the caller waits for SIGTERM (StopSignal).
  static absl::StatusOr<std::unique_ptr<ProgressStream>> Open(long fd);
  ~ProgressStream();

  // Does not block: drops the status when the pipe is full.
  void Update(const JobStatus& status);
  // The status at the end of the job.
  void Finish(const JobStatus& status);

 private:
  ProgressStream(int fd, int stop) : fd_(fd), stop_(stop) {}
  // Writes what it can of rest_.
  void Flush();
  void WatchReader();

  const int fd_, stop_;  // stop_: an eventfd, which ends the thread
  std::string rest_;     // of a line whose beginning is written
  std::thread watcher_;
};

}  // namespace sluice::cli
