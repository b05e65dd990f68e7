// The scheduler daemon: owns the loop, its gRPC listener and its admin HTTP server.
//
// Start order: loop, admin, listener; stop in reverse.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/admin/admin_server.h"
#include "common/base/env.h"
#include "common/daemon/identity.h"
#include "scheduler/scheduler_loop.h"
#include "scheduler/scheduler_service.h"

namespace sluice {

class SchedulerServer {
 public:
  struct Options {
    Identity identity;
    uint32_t server_num = 0;       // 0: as many as the cluster file lists, at least 1
    uint32_t worker_num = 0;       // 0: that of the cluster file
    Env* env = nullptr;            // required; for the files of jobs; outlives the server
    bool job_log_folders = false;  // a job's lines also go to <log_dir>/<job_id>/
    std::function<void(const std::string&)> log;
    // Called when a Shutdown call has ended the cluster.
    std::function<void()> on_end;
  };
  static absl::StatusOr<std::unique_ptr<SchedulerServer>> Start(Options options);
  // Shuts the cluster down unless that was done. Waits a few seconds at most for members to stop.
  ~SchedulerServer();

 private:
  explicit SchedulerServer(Options options) : options_(std::move(options)) {}
  absl::Status Init();
  absl::Status StartAdmin();
  std::string StatusText();

  Options options_;
  std::unique_ptr<SchedulerLoop> loop_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<SchedulerListener> listener_;
};

}  // namespace sluice
