// A scheduler, pservers and workers on this host, on free ports.
//
// Invariants: the processes lie in the folder of this executable; those of a cluster that is not
// detached end with this process, whatever ends it, and so do those of a detached one until
// Release.
//
// Thread safety: one thread at a time, Start on the main one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/child_process.h"
#include "cli/command_line.h"
#include "cli/log_folder.h"
#include "cli/worker_devices.h"
#include "common/daemon/scheduler_client.h"
#include "proto/config.pb.h"

namespace sluice::cli {

class LocalCluster {
 public:
  struct Options {
    ClusterConfig config;  // scheduler "127.0.0.1:0" or a fixed port; pservers "127.0.0.1:0" each
    std::optional<LogFolder> logs;  // REQUIRES: given
    int threads = 1;                // compute threads of a worker
    int server_threads = 2;         // of the data plane of a pserver
    WorkerDevices devices;          // one a worker, that CheckDevices accepts
    bool detached = false;
    absl::Duration start_timeout = absl::Seconds(30);
  };

  // Starts the scheduler, waits for its address, starts the others. CANCELLED when SIGINT or
  // SIGTERM is pending.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(Options options);
  // Ends what still runs, unless released.
  ~LocalCluster();

  const std::string& scheduler() const { return scheduler_; }
  // INTERNAL when a process has ended: which, how, and the tail of its log. The scheduler is told
  // of every one that did not end by itself, so that nobody waits for its lease.
  absl::Status Check();
  // Without it nobody ends the job.
  bool SchedulerHasEnded() { return !children_.empty() && children_[0].process.Poll().has_value(); }
  // The processes were told to stop: waits, then ends those that do not.
  void Stop(absl::Duration grace);
  // The processes of a detached cluster live on. INTERNAL when they could not be told.
  absl::Status Release();

 private:
  explicit LocalCluster(Options options) : options_(std::move(options)) {}
  absl::Status Prepare();
  absl::Status Spawn(Role role, uint32_t rank, const std::vector<std::string>& flags);
  absl::Status AwaitScheduler();
  bool AllEndWithin(absl::Duration time);
  // Tells the scheduler which of its members died and how, once each.
  void TellOfDeaths();

  struct Child {
    ChildProcess process;
    Role role;
    uint32_t rank;
    bool told = false;  // the scheduler knows that it has ended, or cannot be told
  };

  const Options options_;
  // Detached: each process reads one byte that says that it stays, and stops at the end of it.
  int keep_read_ = -1, keep_write_ = -1;
  std::string binaries_;
  std::string scheduler_;
  std::unique_ptr<SchedulerClient> client_;  // since the scheduler's address is known
  std::vector<Child> children_;              // the scheduler first
};

// SIGINT, SIGTERM or SIGHUP came while they were blocked.
bool StopIsPending();

// Cluster of `server_num` pservers and `worker_num` workers on loopback.
ClusterConfig LoopbackCluster(const std::string& scheduler, int server_num, int worker_num);

// Of the flag; INVALID_ARGUMENT unless it is possible.
absl::StatusOr<int> ServerThreads(const ParsedCommand& command);
// Compute threads of one worker among `worker_num` on this host.
int ThreadsPerWorker(int worker_num);

// INVALID_ARGUMENT unless --lease_ms is possible; else it is set, with a heartbeat that fits.
absl::Status SetLease(const ParsedCommand& command, ClusterConfig* cluster);
// --server_num, --server_threads, --log_dir, --lease_ms and those of DeviceFlags.
std::vector<FlagSpec> ClusterFlags();

}  // namespace sluice::cli
