// Runs a pserver without a scheduler in its own process: the other end of the end-to-end rows.
//
// The child is this binary with --serve: the pserver's core behind a GrpcStreamServer and a
// ShmStreamServer, as in sluice-pserver. The child reads its job from standard input and ends when
// that closes.
//
// Thread safety: one thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/security/tls_files.h"
#include "proto/scheduler.pb.h"

namespace sluice::bench {

class PserverProcess {
 public:
  // Opens an async job with these tables for `workers`; SGD where a table says nothing else. `tls`:
  // its certificate; no files: without TLS.
  static absl::StatusOr<std::unique_ptr<PserverProcess>> Start(
      const std::vector<TableConfig>& tables, uint32_t workers, const TlsFiles& tls);
  ~PserverProcess();

  // The job's specification, with its route.
  const JobSpec& job() const { return job_; }
  pid_t pid() const { return pid_; }

 private:
  PserverProcess() = default;

  JobSpec job_;
  pid_t pid_ = -1;
  int to_child_ = -1, from_child_ = -1;
};

// Runs the child, and returns its exit code.
int ServePserver(int threads, const TlsFiles& tls);

}  // namespace sluice::bench
