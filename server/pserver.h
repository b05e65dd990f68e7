// All jobs of one pserver process: opens and drops them as the scheduler desires, finds them for
// streams.
//
// Thread safety: safe from any thread; Reconcile from one at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/transport.h"
#include "server/exchange_handler.h"
#include "server/job_tables.h"

namespace sluice {

class Pserver {
 public:
  // `clock` outlives it.
  explicit Pserver(Clock* clock, JobLimits limits = {})
      : clock_(clock), limits_(std::move(limits)) {}

  // Opens the missing jobs, drops the others, other instances of the same job_id among them, takes
  // over routes. May take long (reads saved
  // models); what cannot be opened is reported with its error, until the job is dropped.
  // `self` is how routes name this pserver.
  void Reconcile(const std::string& self,
                 const google::protobuf::RepeatedPtrField<JobSpec>& desired);

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

 private:
  // JobTables::Open, with memory that runs out as a status.
  absl::StatusOr<std::shared_ptr<JobTables>> Open(const JobSpec& spec, const std::string& self);
  struct Hosted {
    std::shared_ptr<JobTables> tables;  // null when it could not be opened
    uint64_t instance = 0;              // JobSpec.instance
    uint64_t generation = 0;            // of the last route tried
    std::string error;
  };

  Clock* const clock_;
  const JobLimits limits_;
  DataPlaneCounters counters_;
  Mutex mutex_;
  std::map<std::string, Hosted> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
