// Answers the calls of a job's workers: they ask for phases and tasks, look for their pservers,
// give each other bytes, end their job early, and complain.
//
// A rank shows its incarnation and its pass. ABORTED: another incarnation serves the rank.
// CANCELLED (NextTask, Gather): the job is over.
//
// Thread safety: one thread (the loop locks).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/core_parts.h"

namespace sluice {

class WorkerCalls {
 public:
  // `parts` outlives this.
  explicit WorkerCalls(CoreParts* parts) : parts_(parts) {}

  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest& request, absl::Time now);
  // True when NextPhase would return a phase or an error.
  bool PhaseReady(const NextPhaseRequest& request);
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest& request, absl::Time now);
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest& request);
  // See RankGathers. FAILED_PRECONDITION: the rank is elsewhere, or another one has gone on without
  // the call.
  absl::StatusOr<GatherReply> Gather(const GatherRequest& request);
  // True when Gather would return what the ranks have given, or an error.
  bool GatherReady(const GatherRequest& request);
  // A worker's failure without an incarnation is that of its process. It ends the job in any state;
  // all others count only in the rank's present life, and not while the job recovers.
  absl::Status FailJob(const FailJobRequest& request, absl::Time now);
  // ABORTED: the member serves no rank of the job at present. OK when the job is over.
  absl::Status EndJob(const EndJobRequest& request, absl::Time now);

 private:
  // A job and one of its slots, found and checked for a worker's call.
  struct Rank {
    Job* job = nullptr;
    RankSlot* slot = nullptr;
  };
  // `Request`: names a job, a rank, its incarnation and its pass.
  template <typename Request>
  absl::StatusOr<Rank> FindRank(const Request& request) const;

  CoreParts* const parts_;
};

}  // namespace sluice
