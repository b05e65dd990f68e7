// The worker daemon: a member of the cluster that runs the jobs it is assigned, one after another.
//
// Start order: scheduler connection, admin HTTP, membership, job thread; stop in reverse.
// Thread safety: Start and the destructor on one thread.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/admin/admin_server.h"
#include "common/base/mutex.h"
#include "common/daemon/identity.h"
#include "common/daemon/member_session.h"
#include "worker/job_runner.h"
#include "worker/worker_metrics.h"

namespace sluice {

class WorkerServer {
 public:
  struct Options {
    Identity identity;
    int threads = 1;
    Transport* transport = nullptr;  // outlives the server
    std::function<void(const std::string&)> log;
    // The membership has ended: the process should stop with this status.
    std::function<void(absl::Status)> on_end;
  };
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(Options options);
  ~WorkerServer();

 private:
  explicit WorkerServer(Options options) : options_(std::move(options)) {}
  absl::Status Init();
  void OnDesired(const PollReply& reply);
  void FillReport(PollRequest* request);
  void RunJobs();
  std::unique_ptr<google::protobuf::Message> Status();
  void RefreshMetrics();

  const Options options_;
  std::unique_ptr<SchedulerClient> scheduler_;
  std::unique_ptr<WorkerMetrics> metrics_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<MemberSession> session_;

  Mutex mutex_;
  CondVar changed_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;  // session_ is set and stays
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool assigned_ ABSL_GUARDED_BY(mutex_) = false;
  WorkerAssignment assignment_ ABSL_GUARDED_BY(mutex_);  // wanted, when assigned_
  std::string finished_ ABSL_GUARDED_BY(mutex_);         // the run that has ended, as RunKey
  std::shared_ptr<JobRunner> runner_ ABSL_GUARDED_BY(mutex_);
  std::thread job_thread_;
};

}  // namespace sluice
