// The processes that a launch has started for its job: of this host (LocalCluster), or of several
// (HostCluster).
//
// Thread safety: one thread at a time; CheckProcesses runs on the main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/security/grpc_credentials.h"

namespace sluice::cli {

class Cluster {
 public:
  // Ends the processes that still run, unless the cluster was told to stay.
  virtual ~Cluster() = default;

  // The address of the scheduler, and the credentials with which an operator calls it.
  virtual const std::string& scheduler() const = 0;
  virtual const GrpcCredentials& credentials() const = 0;
  // Returns INTERNAL when a process has ended; the message names it, says how it ended and shows
  // the tail of its log. Tells the scheduler of every process that has not left the cluster before,
  // so that nobody waits for its lease. After Supervise or SuperviseScheduler: starts such
  // processes again, and returns INTERNAL only for one that is not.
  virtual absl::Status CheckProcesses() = 0;
  // From now on a dead scheduler is started again. Members are not: one that dies while it starts
  // would die again.
  virtual void SuperviseScheduler(std::function<void(const std::string&)> note) = 0;
  // From now on all dead processes are started again. `note` gets a line for each death and each
  // start.
  virtual void Supervise(std::function<void(const std::string&)> note) = 0;
  // Looks for deaths. Returns how the last process ended whose pid `message` names, or "", e.g.
  // "sluice-worker rank 1 (pid 7) was killed by signal 9 (Killed)".
  virtual std::string Explain(const std::string& message) = 0;
  // A process that is still needed is not started again.
  virtual bool gave_up() const = 0;
  // The scheduler has ended and is not started again: nothing can end the job.
  virtual bool SchedulerIsLost() = 0;
  // After the job: waits until the programs of a user have ended, which may still have something to
  // do, or until `interrupted`. Nothing is started again. Returns a line for each that has failed.
  // `note` gets a line when a program takes long.
  virtual std::vector<std::string> AwaitPrograms(
      const std::function<bool()>& interrupted,
      const std::function<void(const std::string&)>& note) = 0;
  // Waits up to `grace` for processes that were told to stop, then ends the rest by signals.
  virtual void Stop(absl::Duration grace) = 0;
};

}  // namespace sluice::cli
