// A rank of a job, as the scheduler and the pservers know it: what a process needs to join the job
// as this rank.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/parameter_client.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"
#include "common/transport/transport.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Tells the scheduler that this process cannot go on with the job for a reason of its own. Unlike
// an error of a rank, that counts in any attempt of the job, and also while the job recovers.
FailJobRequest FailureOfProcess(const std::string& job_id, const MemberKey& key,
                                const absl::Status& why);

class JobMember {
 public:
  struct Options {
    WorkerAssignment assignment;
    std::function<MemberKey()> key;        // of the worker's present life
    SchedulerClient* scheduler = nullptr;  // like all pointers here, outlives the member
    Transport* transport = nullptr;
    Clock* clock = nullptr;
    uint64_t max_message_bytes = 0;  // limit of the data plane; 0: none
  };
  explicit JobMember(Options options) : options_(std::move(options)) {}

  const WorkerAssignment& assignment() const { return options_.assignment; }
  const JobSpec& spec() const { return options_.assignment.job(); }
  const JobConfig& config() const { return spec().config(); }
  const std::string& job_id() const { return spec().job_id(); }
  uint32_t rank() const { return options_.assignment.rank(); }
  uint64_t incarnation() const { return options_.assignment.incarnation(); }
  MemberKey key() const { return options_.key(); }
  SchedulerClient* scheduler() const { return options_.scheduler; }
  Clock* clock() const { return options_.clock; }

  // INVALID_ARGUMENT: the job has no such rank.
  absl::Status Check() const;
  // The options of the rank's client to the pservers, with the job, rank, tables, route and limits
  // of the assignment. The member outlives the client. INVALID_ARGUMENT: the job has an invalid
  // table.
  absl::StatusOr<ParameterClient::Options> ClientOptions() const;
  // Asks for the job's present route.
  GetRouteRequest RouteRequest() const;
  // Asks for the rank's next phase. The caller adds what it reports, and how long it waits.
  NextPhaseRequest PhaseRequest() const;
  // Says which rank this is.
  void Describe(HeldJob* held) const;
  // Tells the scheduler that the rank has failed, which fails the job in this attempt.
  // `of_process`: as FailureOfProcess.
  absl::Status Fail(const absl::Status& why, const WorkerProgress& progress, bool of_process) const;

 private:
  const Options options_;
};

}  // namespace sluice
