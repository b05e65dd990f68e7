// All jobs of one pserver process: opens and drops them as the scheduler desires, finds them for
// streams.
//
// A job with an initial model is opened on a thread of its own: its load holds up neither the
// report of its progress, nor other jobs, nor its own cancellation.
//
// Thread safety: safe from any thread; Reconcile from one at a time.
#pragma once

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
#include "server/exchange_handler.h"
#include "server/job_tables.h"
#include "server/model_loader.h"

namespace sluice {

class Pserver {
 public:
  // `on_opened` is called on a job's own thread when it has been opened or has failed: Reconcile
  // should be called again, for a route that came meanwhile.
  explicit Pserver(JobResources resources, std::function<void()> on_opened = nullptr)
      : resources_(std::move(resources)), on_opened_(std::move(on_opened)) {}
  ~Pserver() { StopOpening(); }

  // Opens the missing jobs, drops the others, other instances of the same job_id among them, and
  // takes over routes. Returns while jobs with an initial model are still being opened. What cannot
  // be opened is reported with its error, until the job is dropped. `self` is how routes name this
  // pserver.
  void Reconcile(const std::string& self,
                 const google::protobuf::RepeatedPtrField<JobSpec>& desired);

  // Cancels what is being opened, and waits for its threads. No Reconcile may follow.
  void StopOpening();

  std::vector<HostedJob> Report();
  // What its jobs did, for a report; and back when the report was lost.
  void TakeTraces(google::protobuf::RepeatedPtrField<TraceBatch>* traces);
  void GiveBack(const google::protobuf::RepeatedPtrField<TraceBatch>& lost);
  // NOT_FOUND when this instance of the job is not open, FAILED_PRECONDITION when the generation is
  // another than the job's.
  absl::StatusOr<std::vector<SavedFile>> SaveShards(const SaveShardsRequest& request);

  // The handler of a new stream. The pserver outlives it.
  std::unique_ptr<StreamHandler> NewHandler(std::shared_ptr<Stream> stream);
  const DataPlaneCounters& counters() const { return counters_; }

  // Null when it is not open here.
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
    LoadProgress progress;
    std::thread thread;  // of Reconcile and StopOpening
    bool ended = false;  // under mutex_: the thread uses the pserver no more, but for on_opened_
  };

  // JobTables::Open, with memory that runs out as a status.
  absl::StatusOr<std::shared_ptr<JobTables>> Open(const JobSpec& spec, const std::string& self,
                                                  LoadProgress* progress);
  Hosted OpenHosted(const JobSpec& spec, const std::string& self, LoadProgress* progress);
  void Drop(const google::protobuf::RepeatedPtrField<JobSpec>& desired);
  void StartOpening(const JobSpec& spec, const std::string& self);
  void RunOpening(const std::shared_ptr<Opening>& opening, const std::string& self);
  void JoinEnded();
  static HostedJob ReportOf(const Opening& opening);

  const JobResources resources_;
  const std::function<void()> on_opened_;
  DataPlaneCounters counters_;
  Mutex mutex_;
  CondVar opened_;
  std::map<std::string, Hosted> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Opening>> opening_ ABSL_GUARDED_BY(mutex_);
  // Opened or cancelled; their threads are to be joined.
  std::vector<std::shared_ptr<Opening>> leaving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
