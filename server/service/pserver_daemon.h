// The pserver daemon owns the data port and the streams through shared memory, the membership, the
// admin port, and the thread that opens jobs.
//
// Start order: data port, admin HTTP, reconcile thread, join thread (which waits for the
// scheduler); stop in reverse.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/admin/admin_server.h"
#include "common/admin/place_metrics.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/daemon/identity.h"
#include "common/daemon/member_session.h"
#include "common/shm_transport/shm_stream_server.h"
#include "common/transport/grpc_stream_server.h"
#include "common/transport/grpc_transport.h"
#include "server/service/pserver.h"
#include "server/service/pserver_metrics.h"

namespace sluice {

class PserverDaemon {
 public:
  struct Options {
    Identity identity;
    int threads = 2;         // of the data plane
    Clock* clock = nullptr;  // required; outlives the daemon
    Env* env = nullptr;      // required; for saved models; outlives the daemon
    // What was asked of places that are not this machine, by their names; outlives the daemon.
    std::map<std::string, const PlaceUse*> places;
    // Required: bytes that this process can still get (JobResources).
    std::function<uint64_t()> available_memory;
    std::function<void(const std::string&)> log;
    AuditLog* audit = nullptr;  // may be null; outlives the daemon
    // Called once, on a thread of the daemon, when the membership could not begin or has ended. The
    // process should stop with this status.
    std::function<void(absl::Status)> on_end;
  };
  // UNAVAILABLE: a port is taken. Does not wait for the scheduler.
  static absl::StatusOr<std::unique_ptr<PserverDaemon>> Start(Options options);
  ~PserverDaemon();
  // Moves this pserver's shards to others, for at most `wait`, and logs how that ended.
  void Drain(absl::Duration wait);
  // The bound on bytes that clients have sent and that are not handled yet.
  size_t MaxReceivedBytesForTest() const { return data_port_->max_received_bytes(); }

 private:
  PserverDaemon(Options options, std::unique_ptr<Env> confined)
      : options_(std::move(options)),
        confined_(std::move(confined)),
        replica_transport_(ReplicaTransport(options_)),
        pserver_(
            ResourcesOf(options_, confined_.get(), replica_transport_.get()),
            [this] { ReconcileSoon(); }, options_.threads) {}
  static std::unique_ptr<Transport> ReplicaTransport(const Options& options);
  static JobResources ResourcesOf(const Options& options, Env* confined,
                                  Transport* replica_transport);
  absl::Status Init();
  absl::Status StartDataPort();
  // The server of streams through shared memory, beside the data port `port`. Does nothing where
  // --transport forbids it.
  absl::Status StartShm(const GrpcStreamServer::Options& port);
  absl::StatusOr<std::string> InviteToShm(const PeerIdentity& peer, const std::string& request);
  StreamCounts CountStreams() const;
  absl::Status StartAdmin();
  // Joins the cluster. Waits in short pieces, so that a stop need not wait for it.
  void Join();
  void Reconcile();
  void ReconcileSoon();
  // Logs changes of the jobs, in the daemon's log and in the jobs' logs.
  void LogJobs();
  // `news`: text by job.
  void LogNews(const std::map<std::string, std::string>& news);
  void FillReport(PollRequest* request);
  // Lowers the bound on received bytes when rows have taken much of the memory.
  void BoundReceived();
  absl::StatusOr<std::string> SaveShards(const std::string& request);
  std::unique_ptr<google::protobuf::Message> Status();
  bool stopping();

  Options options_;
  const std::unique_ptr<Env> confined_;                 // for the paths of jobs; null: options_.env
  const std::unique_ptr<Transport> replica_transport_;  // outlives the jobs
  Pserver pserver_;
  std::unique_ptr<GrpcStreamServer> data_port_;
  size_t max_received_bytes_ = 0;         // set by StartDataPort
  std::unique_ptr<ShmStreamServer> shm_;  // null: gRPC alone
  std::unique_ptr<SchedulerClient> scheduler_;
  PserverMetrics metrics_;
  PlaceMetrics of_places_{metrics_.registry().get(), "sluice_pserver"};
  std::unique_ptr<AdminServer> admin_;
  std::thread reconcile_thread_, join_thread_;
  // Used by the reconcile thread: the last text that was logged about each job.
  std::map<std::string, std::string> logged_jobs_, logged_cuts_, logged_copies_;
  std::unique_ptr<MemberSession> session_;  // written by the join thread, read after joined_

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  PollReply desired_ ABSL_GUARDED_BY(mutex_);
  bool reconcile_ ABSL_GUARDED_BY(mutex_) = false;  // desired_ or the jobs have changed
};

}  // namespace sluice
