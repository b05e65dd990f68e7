// Holds all jobs of one pserver process: opens and drops them as the scheduler desires, and finds
// them for streams.
//
// A job with an initial model or a checkpoint to resume from is opened on a separate thread. Its
// load then delays neither progress reports, nor other jobs, nor its own cancellation.
//
// Thread safety: safe from any thread. Call Reconcile from one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/transport/transport.h"
#include "proto/scheduler.pb.h"
#include "server/checkpoints/cut_writer.h"
#include "server/checkpoints/model_loader.h"
#include "server/service/exchange_handler.h"
#include "server/service/peer_refusals.h"
#include "server/shards/shard_threads.h"
#include "server/tables/job_tables.h"

namespace sluice {

// Makes `reports` fit into `max_bytes`, because the scheduler refuses longer ones. The largest lose
// their contents and get an error that says so, with which the scheduler ends their jobs. A job
// with a large report thus harms neither other jobs nor the pserver.
void BoundReports(size_t max_bytes, std::vector<HostedJob>* reports);

class Pserver {
 public:
  // `on_change` is called when a job that was opened on its own thread is open or has failed. Call
  // Reconcile again then, for a route that came meanwhile. It is also called when a checkpoint has
  // begun, is complete or has failed, which should be reported. The calls come on threads of the
  // pserver, until Stop.
  // `threads`: how many threads may work on one sync step, with the one that closes it.
  explicit Pserver(JobResources resources, std::function<void()> on_change = nullptr,
                   int threads = 1);
  ~Pserver() { Stop(); }

  // Opens the missing jobs, drops the others, and takes over routes. Other instances of the same
  // job_id are also dropped. Returns while jobs that read their tables from files are still being
  // opened. A job that cannot be opened is reported with its error until it is dropped. `self`: the
  // name of this pserver in routes.
  void Reconcile(const std::string& self,
                 const google::protobuf::RepeatedPtrField<JobSpec>& desired);

  // Passes the scheduler's orders about checkpoints to the open jobs, and ignores those for other
  // jobs.
  void SetCutOrders(const google::protobuf::RepeatedPtrField<CutOrder>& orders);

  // Cancels all openings and checkpoints, and waits for their threads. No Reconcile may follow.
  void Stop();

  std::vector<HostedJob> Report();
  // The open jobs.
  void FillHolds(uint32_t rank, google::protobuf::RepeatedPtrField<HeldJob>* holds);
  // Moves the jobs' trace spans into a report. GiveBack returns them when the report was lost.
  void TakeTraces(google::protobuf::RepeatedPtrField<TraceBatch>* traces);
  void GiveBack(const google::protobuf::RepeatedPtrField<TraceBatch>& lost);
  // NOT_FOUND when this instance of the job is not open. FAILED_PRECONDITION when the request has
  // another generation than the job. PERMISSION_DENIED when the caller has no pass of a rank, or
  // the folder is not that of the job's model.
  absl::StatusOr<std::vector<SavedFile>> SaveShards(const SaveShardsRequest& request);

  // Makes the handler of a new stream, which `peer` has opened. The pserver outlives it.
  std::unique_ptr<StreamHandler> NewHandler(std::shared_ptr<Stream> stream,
                                            const PeerIdentity& peer = PeerIdentity());
  // The same for streams of copies (kReplicaMethod).
  std::unique_ptr<StreamHandler> NewReplicaHandler(std::shared_ptr<Stream> stream,
                                                   const PeerIdentity& peer = PeerIdentity());
  // Call it about once a second: see PeerRefusals.
  void RecordStrayHellos() { refusals_.RecordStrayHellos(); }
  // Takes memory for messages from what rows must leave (RowMemory::TakeFromReserve). It may
  // outlive the pserver.
  std::function<bool(size_t bytes)> TakeMemory() const {
    return [memory = row_memory_](size_t bytes) { return memory->TakeFromReserve(bytes); };
  }
  const DataPlaneCounters& counters() const { return counters_; }
  // Counts a data stream that was ended because its client did not read.
  void CountCutStream() { counters_.streams_cut.fetch_add(1, std::memory_order_relaxed); }

  // Returns null when the job is not open here.
  std::shared_ptr<JobTables> Find(const std::string& job_id);

  // Waits until nothing is being opened.
  void WaitUntilOpenForTest();

 private:
  struct Hosted {
    std::shared_ptr<JobTables> tables;  // null when it could not be opened
    uint64_t instance = 0;              // JobSpec.instance
    uint64_t generation = 0;            // of the last route tried
    std::string error;
  };
  // A job that is being opened on its own thread.
  struct Opening {
    JobSpec spec;
    std::string self;  // this pserver in its route
    LoadProgress progress;
    std::thread thread;  // joined by Reconcile or Stop
    bool ended = false;  // under mutex_: the thread will only call on_change_
  };

  // Calls JobTables::Open, and returns bad_alloc as a status.
  absl::StatusOr<std::shared_ptr<JobTables>> Open(const JobSpec& spec, const std::string& self,
                                                  LoadProgress* progress);
  Hosted OpenHosted(const JobSpec& spec, const std::string& self, LoadProgress* progress);
  void Drop(const google::protobuf::RepeatedPtrField<JobSpec>& desired);
  void StartOpening(const JobSpec& spec, const std::string& self);
  void RunOpening(const std::shared_ptr<Opening>& opening, const std::string& self);
  void JoinEnded();
  // True while a cancelled opening of the job may still use memory.
  bool IsLeaving(const std::string& job_id);
  static HostedJob ReportOf(const Opening& opening);

  const std::shared_ptr<RowMemory> row_memory_;
  CutWriter cut_writer_;  // outlives the jobs, as do the threads
  ShardThreads shard_threads_;
  const JobResources resources_;
  const std::function<void()> on_change_;
  DataPlaneCounters counters_;
  RankStreams rank_streams_;
  PeerRefusals refusals_;
  Mutex mutex_;
  CondVar opened_;
  std::map<std::string, Hosted> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Opening>> opening_ ABSL_GUARDED_BY(mutex_);
  // Opened or cancelled; their threads are to be joined.
  std::vector<std::shared_ptr<Opening>> leaving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
