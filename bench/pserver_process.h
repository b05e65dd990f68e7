// A pserver without scheduler in a process of its own: the other end of the end-to-end rows.
//
// The child is this binary again, with --serve: the pserver's core behind a GrpcStreamServer, as in
// sluice-pserver. It reads its job from its standard input and ends when that closes.
//
// Thread safety: one thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace sluice::bench {

class PserverProcess {
 public:
  // Opens a job with these tables, async, SGD and all else as the tables say, for `workers`.
  static absl::StatusOr<std::unique_ptr<PserverProcess>> Start(
      const std::vector<TableConfig>& tables, uint32_t workers);
  ~PserverProcess();

  // With its route.
  const JobSpec& job() const { return job_; }
  pid_t pid() const { return pid_; }

 private:
  PserverProcess() = default;

  JobSpec job_;
  pid_t pid_ = -1;
  int to_child_ = -1, from_child_ = -1;
};

// What the child runs: its exit code.
int ServePserver(int threads);

}  // namespace sluice::bench
