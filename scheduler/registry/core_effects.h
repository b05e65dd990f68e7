// Collects what an event causes outside the core: files to write, and waiting calls to check.
//
// Every change of a member's desired state or of a job's status is noted here. So a version never
// changes without waking the calls that wait for it. The records that the scheduler must persist
// are also collected with the decisions that they describe.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/job/job.h"
#include "scheduler/job/output_action.h"
#include "scheduler/members/membership.h"
#include "scheduler/registry/job_records.h"

namespace sluice {

// Names what a call waits for: the desired state of a member, the next phase of a job, or its
// status.
struct WaitKey {
  enum Kind : uint8_t { kDesired, kPhase, kStatus };

  static WaitKey Desired(uint64_t member_id) { return {kDesired, member_id, ""}; }
  static WaitKey Phase(std::string job_id) { return {kPhase, 0, std::move(job_id)}; }
  static WaitKey Status(std::string job_id) { return {kStatus, 0, std::move(job_id)}; }

  bool operator==(const WaitKey& other) const {
    return kind == other.kind && member_id == other.member_id && job_id == other.job_id;
  }
  template <typename H>
  friend H AbslHashValue(H state, const WaitKey& key) {
    return H::combine(std::move(state), key.kind, key.member_id, key.job_id);
  }

  Kind kind = kDesired;
  uint64_t member_id = 0;
  std::string job_id;
};

// A line for the scheduler's log.
struct JobLine {
  std::string job_id;
  std::string text;
};

// A write to the job's files; the rest of it follows from its kind.
OutputAction ActionOf(const Job& job, OutputAction::Kind kind, absl::Time time);

// Points of the curves after `epoch` (from 1): what losses have cost until now, as in result.json,
// and how old the newest checkpoint is.
// REQUIRES: job.run().
std::vector<Scalar> RecoveryPoints(const Job& job, uint64_t epoch);

class CoreEffects {
 public:
  // `clock`: see JobRecords.
  explicit CoreEffects(std::string clock = "") : records_(std::move(clock)) {}

  // Raises the version of the member's desired state.
  void DesiredChanged(Member* member);
  // Wakes the member's calls; each is answered with an error.
  void MemberGone(uint64_t member_id) { changed_.push_back(WaitKey::Desired(member_id)); }
  // Raises the version of the job's status.
  void StatusChanged(Job* job);
  void PhaseChanged(const Job& job) { changed_.push_back(WaitKey::Phase(job.id())); }
  // The scheduler no longer knows the job.
  void JobForgotten(const std::string& job_id);

  void Log(const Job& job, std::string text) { lines_.push_back({job.id(), std::move(text)}); }
  void Write(OutputAction action) { actions_.push_back(std::move(action)); }
  // Continues the files of a job that an earlier scheduler began.
  void WriteStartedAgain(const Job& job, absl::Time now);
  // Adds points to the job's curves.
  void WriteScalars(const Job& job, std::vector<Scalar> points, absl::Time now);
  // Adds the RecoveryPoints of this moment, between the ends of epochs. Does nothing while no
  // attempt runs.
  void WriteRecoveryPoints(const Job& job, absl::Time now);
  // Adds the points that the job's run still has, also incomplete ones.
  // REQUIRES: job->run().
  void WriteLastScalars(Job* job, absl::Time now);
  JobRecords* records() { return &records_; }

  // Everything collected since the last call. A key may occur twice.
  std::vector<OutputAction> TakeActions() { return std::exchange(actions_, {}); }
  std::vector<JobLine> TakeLines() { return std::exchange(lines_, {}); }
  std::vector<WaitKey> TakeChanged() { return std::exchange(changed_, {}); }

 private:
  std::vector<OutputAction> actions_;
  std::vector<JobLine> lines_;
  JobRecords records_;
  std::vector<WaitKey> changed_;
};

// Publishes a change of a running job's route or of its ranks' lives: the one way in which both
// change while the job runs.
//
// The generation rises, so that every pserver takes the change over before it admits another
// request, and requests of the old generation are refused. Workers then fetch the route, and send
// what the present owners of shards have not acknowledged.
//
// Raises the generation of job->spec(), names the present life of every rank in it, and tells the
// pservers. The caller has changed the route or the ranks.
void PublishRouteChange(Job* job, Membership* members, CoreEffects* effects);

}  // namespace sluice
