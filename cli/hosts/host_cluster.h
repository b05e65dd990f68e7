// Starts and stops the daemons of one job on several hosts, through a guard on each of them
// (host_guards.h), and starts dead ones again. The daemons of a host that is gone are started on
// the hosts that are left, once its guard must have ended them; without the scheduler's host the
// job cannot continue.
//
// Invariants: every daemon ends with this process, whatever ends it, within 15 s: its guard
// notices.
//
// Thread safety: one thread at a time, the main thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/cluster_folders.h"
#include "cli/cluster/local_cluster.h"
#include "cli/cluster/restart_policy.h"
#include "cli/hosts/host_checks.h"
#include "cli/hosts/host_guards.h"
#include "cli/hosts/host_list.h"
#include "cli/hosts/own_folder.h"
#include "common/base/clock.h"
#include "common/daemon/log_file.h"
#include "common/daemon/scheduler_client.h"
#include "proto/config.pb.h"

namespace sluice::cli {

class HostCluster final : public Cluster {
 public:
  struct Options {
    Clock* clock = nullptr;      // required; outlives the cluster
    HostLinks* links = nullptr;  // the same
    std::vector<HostSpec> hosts;
    Placement placement;
    PortRange ports;
    LimitsConfig limits;
    std::string guard_command;      // GuardCommand
    std::string version;            // that the hosts must print
    SharedPaths paths;              // of the job
    std::optional<LogFolder> logs;  // must be set; the logs of all hosts are collected here
    LogLimits log_limits;           // of each process
    int server_threads = 2;         // data-plane threads of a pserver
    std::string transport;          // of pservers and workers
    std::string device = "cpu";     // of workers
    // Nothing: workers are sluice-worker. Its `interpreter` is a path, or a name that each host
    // finds in its PATH; `folder` must be one that all hosts share.
    std::optional<WorkerProgram> program;
    bool program_is_shipped = false;  // with its folder, beside the programs (shipment.h)
    bool tls = true;                  // mutual TLS, with certificates made for this cluster
    bool shows_logs = false;          // `note` gets all lines of the logs
    std::function<void(const std::string&)> note;  // warnings and the start's progress
    absl::Duration start_timeout = absl::Seconds(30);
  };

  // Connects to all hosts, checks them, and starts the daemons. INVALID_ARGUMENT: what is wrong on
  // which hosts, a line each; nothing has been started then. CANCELLED when StopIsPending.
  static absl::StatusOr<std::unique_ptr<HostCluster>> Start(Options options);
  ~HostCluster() override;

  // Checks the paths of a job that became known after the start, as that of a program.
  // INVALID_ARGUMENT: what is wrong on which hosts. CANCELLED: StopIsPending.
  absl::Status CheckPaths(const SharedPaths& paths);

  const std::string& scheduler() const override { return scheduler_; }
  const GrpcCredentials& credentials() const override { return credentials_; }
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

 private:
  struct Daemon {
    Role role;
    uint32_t rank;
    size_t host;
    std::string id;    // of this life
    std::string name;  // "sluice-worker rank 1"
    uint32_t pid = 0;
    int lives = 0;
    absl::Time started;
    bool running = false;
    std::string end;         // how the last life has ended
    bool failed = false;     // it did not end with code 0
    bool told = true;        // the scheduler knows of its end
    bool host_gone = false;  // it ended with its host
    std::string why_not_again;
    absl::Time start_at = absl::InfiniteFuture();
    RestartPolicy policy;
    std::unique_ptr<LogFile> log;
    std::deque<std::string> tail;
  };

  explicit HostCluster(Options options);
  absl::Status SendFiles();
  absl::Status MakeCertificates();
  absl::Status StartDaemons();
  absl::Status StartDaemon(Daemon* daemon);
  // The port at which programs of torch.distributed meet, on the host of the first worker.
  absl::Status ReserveMeetingPort();
  std::vector<std::string> CommandOf(const Daemon& daemon) const;
  // The fields of the request that starts a worker that is a program.
  HostGuards::Fields ProgramFields(const Daemon& daemon) const;
  bool IsProgram(const Daemon& daemon) const {
    return daemon.role == ROLE_WORKER && options_.program.has_value();
  }

  // Events of the guards.
  void TakeLog(const std::string& id, const std::string& line);
  void TakeEnd(Daemon* daemon, const std::string& end, bool failed);
  void TakeLoss(size_t host);

  void TellOfDeaths();
  void PlanNextLife(Daemon* daemon);
  absl::Status StartAgain(Daemon* daemon);
  absl::Status HowItEnded(const Daemon& daemon) const;
  bool Supervises(const Daemon& daemon) const {
    return note_ != nullptr && (supervises_members_ || daemon.role == ROLE_SCHEDULER);
  }
  bool SomeRun() const;
  Daemon* FindDaemon(const std::string& id);

  const Options options_;
  std::unique_ptr<OwnFolder> certificates_;  // null: none
  HostGuards guards_;
  std::vector<Daemon> daemons_;  // the first is the scheduler
  std::string scheduler_;
  GrpcCredentials credentials_;
  std::unique_ptr<SchedulerClient> client_;
  struct Death {
    uint32_t pid;
    std::string cause;
  };
  std::vector<Death> deaths_;
  std::function<void(const std::string&)> note_;  // null: dead processes stay dead
  bool supervises_members_ = false;
  bool gave_up_ = false;
  bool scheduler_lost_ = false;
  bool stopped_ = false;
  uint32_t meeting_port_ = 0;
};

}  // namespace sluice::cli
