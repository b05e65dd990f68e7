// One rank of a job: the member assigned to it, and whether that member serves it.
//
//   SERVING -> WITHDRAWN (told to stop, has not confirmed) -> RELEASED
//
// Members learn of changes as versions of their desired state. A report counts only when it has
// seen the version in question: reports can overtake each other and the answers to earlier ones.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sluice {

class RankSlot {
 public:
  // `worker`: the member's rank in the cluster.
  // `rejoins`: this life replaces an earlier one of a running job.
  RankSlot(uint64_t member_id, uint32_t worker, uint64_t incarnation, bool rejoins = false)
      : member_id_(member_id), worker_(worker), incarnation_(incarnation), rejoins_(rejoins) {}

  uint64_t member_id() const { return member_id_; }
  uint32_t worker() const { return worker_; }
  uint64_t incarnation() const { return incarnation_; }
  bool rejoins() const { return rejoins_; }
  bool serving() const { return state_ == State::kServing; }
  bool released() const { return state_ == State::kReleased; }

  // This version of the member's desired state asks it to serve the rank.
  void Assign(uint64_t version) { told_version_ = version; }
  // This version asks it to stop.
  // REQUIRES: serving().
  void Withdraw(uint64_t version);
  void Release() { state_ = State::kReleased; }

  // Notes a report that names the job.
  void SeenRunning();
  // Notes a report that does not name the job. Returns since when reports have not named it;
  // InfiniteFuture when this report may be older than the assignment.
  absl::Time SeenIdle(uint64_t seen_version, absl::Time now);
  // True when a report that has seen `seen_version` and does not name the job confirms the stop.
  bool ConfirmsStop(uint64_t seen_version) const;
  // True once a report has named the job.
  bool has_run() const { return has_run_; }

 private:
  enum class State : uint8_t { kServing, kWithdrawn, kReleased };

  uint64_t member_id_;
  uint32_t worker_;
  uint64_t incarnation_;
  bool rejoins_;
  State state_ = State::kServing;
  uint64_t told_version_ = 0;
  uint64_t withdrawn_version_ = 0;
  bool has_run_ = false;
  absl::Time idle_since_ = absl::InfiniteFuture();
};

}  // namespace sluice
