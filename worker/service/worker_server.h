// The worker daemon: a member of the cluster that runs the jobs it is assigned, one after another.
//
// Start order: admin HTTP, job thread, join thread (which waits for the scheduler). Stopping takes
// the reverse order.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/admin/admin_server.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/daemon/identity.h"
#include "common/daemon/member_session.h"
#include "common/places/place_use.h"
#include "common/shm_transport/shm_transport.h"
#include "common/transport/grpc_transport.h"
#include "worker/service/job_runner.h"
#include "worker/service/worker_metrics.h"

namespace sluice {

// The worker's transport to the pservers: gRPC, and shared memory where --transport allows it.
//
// Thread safety: as the transport's. It outlives all users of the transport.
class DataPlane {
 public:
  // `log` gets a line for each pserver that says how it is reached.
  DataPlane(const Identity& identity, std::function<void(const std::string&)> log);

  Transport* transport();

 private:
  GrpcTransport grpc_;
  std::unique_ptr<ShmTransport> shm_;  // null: gRPC alone
};

class WorkerServer {
 public:
  struct Options {
    Identity identity;
    int threads = 1;
    ComputeDevice device;               // this worker's own
    const ModelList* models = nullptr;  // required; with networks; outlives the server
    // The digest of the program that this process is (RegisterRequest.program). Empty: none.
    std::string program;
    OwnData* own_data = nullptr;  // JobRunner::Options::own_data; outlives the server
    // Called on the job thread before a run begins, and after it has ended, with its status, or the
    // job's when that is not done. May be null.
    std::function<void(const WorkerAssignment& assignment)> on_job_start;
    std::function<void(const WorkerAssignment& assignment, const absl::Status& status)> on_job_end;
    Transport* transport = nullptr;  // outlives the server
    Clock* clock = nullptr;          // required; outlives the server
    Env* env = nullptr;              // required; for the files of jobs; outlives the server
    std::function<void(const std::string&)> log;
    // What was asked of places that are not this machine, by their names; outlives the server.
    std::map<std::string, const PlaceUse*> places;
    // Ends reads of `env` that wait for such a place. Called when the server stops, after its job
    // was cancelled, so that their errors are no failure of the job, and before it is waited for.
    std::function<void()> stop_reads;
    AuditLog* audit = nullptr;  // may be null; outlives the server
    // For tests: wraps the engine of a job whose workers keep the dense tables. Null: no wrapper.
    std::function<std::unique_ptr<Collective>(std::unique_ptr<Collective>)> wrap_collective;
    // Called when the membership could not begin or has ended. The process should then stop with
    // this status.
    std::function<void(absl::Status)> on_end;
  };
  // Does not wait for the scheduler.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(Options options);
  ~WorkerServer();

  // The process cannot go on with its job, which fails with `why`, also between two attempts of the
  // job. Before the first job nothing happens. Safe from any thread but the job thread.
  void FailJob(absl::Status why);
  // ParameterClient::acknowledged of the running job; nothing: no job runs. Safe from any thread.
  std::optional<uint64_t> Acknowledged();
  // For calls of the job's program. Lives as long as this.
  SchedulerClient* scheduler() const { return scheduler_.get(); }
  // The user has interrupted this process: its job is cancelled. Without a job nothing happens.
  // Safe from any thread but the job thread.
  absl::Status CancelJob();

 private:
  explicit WorkerServer(Options options) : options_(std::move(options)) {}
  absl::Status Init();
  // Joins the cluster, in short waits, so that a stop does not wait for it.
  void Join();
  bool Stopping();
  // Writes a line that names the job.
  void LogJob(const std::string& job_id, uint32_t rank, const std::string& line);
  void OnDesired(const PollReply& reply);
  void FillReport(PollRequest* request);
  void FillHolds(google::protobuf::RepeatedPtrField<HeldJob>* holds);
  void ReportLost(const PollRequest& request);
  void RunJobs();
  std::unique_ptr<google::protobuf::Message> Status();
  void RefreshMetrics();

  const Options options_;
  std::unique_ptr<Env> confined_;  // for the paths of jobs; null: options_.env
  std::unique_ptr<SchedulerClient> scheduler_;
  std::unique_ptr<WorkerMetrics> metrics_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<MemberSession> session_;  // written by the join thread, read after started_

  Mutex mutex_;
  CondVar changed_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;  // session_ is set and stays
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool assigned_ ABSL_GUARDED_BY(mutex_) = false;
  WorkerAssignment assignment_ ABSL_GUARDED_BY(mutex_);  // valid when assigned_
  // That this process may still fail: of the last assignment. Empty: none, or it has gone well.
  std::string job_ ABSL_GUARDED_BY(mutex_);
  std::string finished_ ABSL_GUARDED_BY(mutex_);  // RunKey of the last run that ended
  WorkerTotals ended_ ABSL_GUARDED_BY(mutex_);    // totals of the runs that ended
  std::shared_ptr<JobRunner> runner_ ABSL_GUARDED_BY(mutex_);
  std::thread job_thread_, join_thread_;
};

}  // namespace sluice
