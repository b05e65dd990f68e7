// Starts and stops a scheduler, pservers and workers on free ports of this host, and starts dead
// ones again. The first scheduler begins with an empty state; one that is started again continues
// with the state that the last one left.
//
// Invariants: the binaries of the daemons are in the folder of this executable. The daemons end
// with this process, whatever ends it. Only the daemons of a detached cluster keep running, after
// Release.
//
// Thread safety: one thread at a time; Start and CheckProcesses run on the main thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cluster/child_process.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/cluster_folders.h"
#include "cli/cluster/restart_policy.h"
#include "cli/cluster/worker_devices.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/daemon/log_file.h"
#include "common/daemon/scheduler_client.h"
#include "common/security/grpc_credentials.h"
#include "proto/config.pb.h"

namespace sluice::cli {

// A program of the user that takes the place of sluice-worker (python/README.md).
struct WorkerProgram {
  std::string interpreter;  // path of the executable
  std::string file;
  std::vector<std::string> args;
  // Where its first worker offers the job: declaration.h of python/core. Start empties it.
  std::string folder;
  bool debugs = false;  // one worker only: it has the terminal's input, and stops at errors

  std::string job_file() const { return folder + "/job.textproto"; }
};

class LocalCluster final : public Cluster {
 public:
  struct Options {
    Clock* clock = nullptr;  // required; outlives the cluster
    ClusterConfig config;    // scheduler "127.0.0.1:0" or a fixed port; pservers "127.0.0.1:0" each
    std::optional<LogFolder> logs;         // must be set
    LogLimits log_limits;                  // of each process
    int threads = 1;                       // compute threads of a worker
    int server_threads = 2;                // data-plane threads of a pserver
    WorkerDevices devices;                 // one per worker, accepted by CheckDevices
    std::optional<WorkerProgram> program;  // nothing: workers are sluice-worker
    std::string transport;                 // of pservers and workers
    bool detached = false;
    bool tls = false;  // mutual TLS, with certificates that Start makes in the log folder
    absl::Duration start_timeout = absl::Seconds(30);
  };

  // Starts the scheduler, waits for its address, then starts the others. CANCELLED when
  // StopIsPending.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(Options options);
  // Ends the processes that still run, unless Release was called.
  ~LocalCluster() override;

  const std::string& scheduler() const override { return scheduler_; }
  const GrpcCredentials& credentials() const override { return credentials_; }
  // After Supervise, INTERNAL only for one that dies again and again (RestartPolicy), for a program
  // that ends itself with code 0 before its job is over, and for a scheduler that has ended by
  // itself.
  absl::Status CheckProcesses() override;
  void SuperviseScheduler(std::function<void(const std::string&)> note) override;
  void Supervise(std::function<void(const std::string&)> note) override;
  std::string Explain(const std::string& message) override;
  bool gave_up() const override { return gave_up_; }
  bool SchedulerIsLost() override;
  std::vector<std::string> AwaitPrograms(
      const std::function<bool()>& interrupted,
      const std::function<void(const std::string&)>& note) override;
  void Stop(absl::Duration grace) override;
  // Lets the processes of a detached cluster, also those started later, outlive this one. INTERNAL
  // when they could not be told.
  absl::Status Release();

 private:
  explicit LocalCluster(Options options) : options_(std::move(options)) {}
  absl::Status Prepare();
  // Makes the certificates of the cluster.
  absl::Status PrepareTls(const std::string& folder);
  absl::Status Spawn(Role role, uint32_t rank, const std::vector<std::string>& flags);
  absl::Status AwaitScheduler();
  bool SchedulerHasEnded() { return !children_.empty() && children_[0].process.Poll().has_value(); }
  // Like SchedulerIsLost, as of the last NoteDeaths.
  bool SchedulerIsOver();
  bool AllEndWithin(absl::Duration time);
  struct Child {
    ChildProcess process;
    Role role;
    uint32_t rank;
    std::vector<std::string> flags;
    absl::Time started;
    bool told = false;          // the scheduler has answered the report of its end, or needs none
    bool noted = false;         // its end is in deaths_, and the policy has been asked
    std::string why_not_again;  // it is not started again; empty: it may be
    bool again = false;         // it is not the first process of its rank
    absl::Time start_at = absl::InfiniteFuture();  // again
    RestartPolicy policy;

    bool gave_up() const { return !why_not_again.empty(); }
  };
  bool IsProgram(const Child& child) const {
    return child.role == ROLE_WORKER && options_.program.has_value();
  }
  // Starts it again when it dies.
  bool Supervises(const Child& child) const;
  struct Death {
    pid_t pid = 0;
    std::string cause;
  };

  // Chooses the port at which programs of torch.distributed meet.
  absl::Status ReserveMeetingPort();
  // Gives a worker that is a program its variables, in place of flags.
  void UseProgram(uint32_t rank, ChildOptions* child) const;
  absl::StatusOr<ChildProcess> StartProcess(Role role, uint32_t rank,
                                            const std::vector<std::string>& flags);
  // Tells processes of a released cluster to stay.
  absl::Status TellToStay(size_t processes);
  // The process that is the member: that of the child, or for a script that is run by itself, the
  // one whose stand-in the child is (python/sluice/_stand_in.py).
  pid_t MemberPid(const Child& child) const;
  // Whether a program of the user has ended before it became a worker, by an error of its own such
  // as an import that fails.
  bool FailedToStart(const Child& child, int wait_status) const;
  // Records the ends of processes, and decides which are started again.
  void NoteDeaths();
  // Decides whether a process that has ended without having left the cluster is started again.
  void NoteLoss(Child* child, int wait_status, const std::string& cause);
  // How the process ended, e.g. "sluice-worker rank 1 (pid 7) exited with code 1".
  std::string CauseOf(const Child& child, int wait_status) const;
  // Tells the scheduler which of its members died and how, once each.
  void TellOfDeaths();
  // Starts the process again when it is time.
  absl::Status StartAgain(Child* child);
  absl::Status HowItEnded(const Child& child, int status) const;

  const Options options_;
  // A pipe to the processes of a detached cluster. Each reads one byte, which tells it to stay; at
  // the end of the pipe it stops.
  int keep_read_ = -1, keep_write_ = -1;
  // A bound socket that nobody uses: the system gives its port to no one by chance, yet rank 0 of a
  // program may listen there.
  int meeting_socket_ = -1;
  int meeting_port_ = 0;
  std::string binaries_;
  std::string scheduler_;
  GrpcCredentials credentials_;
  std::unique_ptr<SchedulerClient> client_;  // set once the scheduler's address is known
  std::vector<Child> children_;              // the first is the scheduler
  std::vector<Death> deaths_;
  std::function<void(const std::string&)> note_;  // null: dead processes stay dead
  bool supervises_members_ = false;               // not only the scheduler
  bool gave_up_ = false;
  bool released_ = false;
};

// Returns whether SIGINT, SIGTERM or SIGHUP arrived while it was blocked.
bool StopIsPending();

// Returns the config of `server_num` pservers and `worker_num` workers on loopback.
ClusterConfig LoopbackCluster(const std::string& scheduler, int server_num, int worker_num);

// Returns --log_max_mb and --log_keep. INVALID_ARGUMENT when one is out of range.
absl::StatusOr<LogLimits> LogLimitsOf(const ParsedCommand& command);

// Returns --server_threads. INVALID_ARGUMENT when it is out of range.
absl::StatusOr<int> ServerThreads(const ParsedCommand& command);
// Returns the compute threads of each of `worker_num` workers that share this host.
int ThreadsPerWorker(int worker_num);

// Sets the lease to --lease_ms, with a heartbeat that fits it. INVALID_ARGUMENT when --lease_ms is
// out of range.
absl::Status SetLease(const ParsedCommand& command, ClusterConfig* cluster);
// SLUICE_TRANSPORT, else auto. INVALID_ARGUMENT when that is not a transport.
absl::StatusOr<std::string> DefaultTransport();
// --transport, else the default. INVALID_ARGUMENT when that is not a transport.
absl::StatusOr<std::string> TransportOf(const ParsedCommand& command);
// --server_num, --server_threads, --transport, --log_dir, --log_max_mb, --log_keep, --lease_ms and
// the flags of DeviceFlags.
std::vector<FlagSpec> ClusterFlags();

}  // namespace sluice::cli
