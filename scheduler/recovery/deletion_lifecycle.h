// Leads the deletions of rows of running jobs: checks what operators ask for, passes reports to
// RowDeletion, and tells members what it has decided.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"
#include "scheduler/registry/core_effects.h"

namespace sluice {

class DeletionLifecycle {
 public:
  // The parts of the core that it works on. All outlive it.
  struct Parts {
    Membership* members = nullptr;
    const PauseDetector* pauses = nullptr;
    CoreEffects* effects = nullptr;
  };
  // A deletion is given up when the pservers make no progress for `wait`. Its number is not below
  // `first_id`, which no earlier scheduler has reached.
  DeletionLifecycle(absl::Duration wait, uint64_t first_id, Parts parts)
      : wait_(wait), next_id_(first_id), parts_(parts) {}

  // Begins a deletion of the rows of `keys`, ascending and each once, or joins the one that is
  // under way for the same rows. NOT_FOUND, INVALID_ARGUMENT: no such table, or not these keys.
  // FAILED_PRECONDITION, UNAVAILABLE: not now, or not with this job.
  absl::StatusOr<DeleteRowsReply> Begin(Job* job, const std::string& table,
                                        std::vector<uint64_t> keys, absl::Time now);
  // The outcome of an earlier one, once it is over. NOT_FOUND: it is not known.
  static absl::StatusOr<DeleteRowsReply> Outcome(const Job& job, uint64_t id);

  // A report of a pserver of the job.
  void TakeHosted(const Member& pserver, const HostedJob& hosted, Job* job, absl::Time now);
  // The run of the job's next attempt begins.
  void RunBegins(Job* job, absl::Time now);
  // Call after events that may have ended a checkpoint, and from time to time.
  void Advance(Job* job, absl::Time now);
  // The job is over.
  void End(Job* job);

 private:
  // Every member of the job looks for news.
  void Tell(Job* job);
  // The deletion may be over; if so, logs what became of it.
  void Note(const Job& job, uint64_t id);

  const absl::Duration wait_;
  uint64_t next_id_;
  const Parts parts_;
};

}  // namespace sluice
