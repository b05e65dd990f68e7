// Counts what a job has lost and how it was changed, and decides when its next attempt can begin.
//
// After a loss the job waits until every pserver rank is served again, the workers that it keeps
// have stopped, enough others are free, and no manifest of a checkpoint is being written. It waits
// at most `wait`, from the last loss of a member that had served it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/output_action.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/pause_detector.h"

namespace sluice {

class Job;

class JobRecovery {
 public:
  struct Decision {
    enum Kind { kWait, kBegin, kFail };
    Kind kind = kWait;
    std::string message;  // kWait, kFail: what was lost, and what the job waits for
  };

  // The job was submitted to continue from a checkpoint. Takes over how many examples its model was
  // trained on again; the other counts describe the saved job's run, and begin at 0.
  void Continue(const Recovery& of_checkpoint) {
    counts_.set_examples_replayed(of_checkpoint.examples_replayed());
  }
  // Continues with the counts of an earlier scheduler, and counts the restart. The wait begins.
  void Restore(const Recovery& counts, absl::Time now);
  // The losses that an earlier scheduler has counted.
  void RestoreLosses(std::vector<absl::Time> times) { losses_at_ = std::move(times); }
  // Names the last loss that is not one of a member. The next attempt is not a planned one.
  void NoteCause(const std::string& cause, absl::Time now);
  // Counts the loss; the wait begins again with `waits_anew`.
  void CountLoss(const Member& lost, absl::Time now, bool waits_anew = true);
  // The present attempt has come to this many steps and examples of the job, as far as reported.
  void NoteReached(uint64_t steps, uint64_t examples);
  // The next attempt is one that a user asked for. `what`: e.g. "scaled from 2 to 3 workers". The
  // wait begins.
  void Plan(const std::string& what, absl::Time now);
  // The job continues without this many of the ranks that it has lost.
  void CountShrink(uint32_t ranks);
  // The wait for members begins now: the present attempt went on for a while after the loss.
  void WaitFrom(absl::Time now) { since_ = now; }
  // The next attempt begins where the present one has ended: nothing that was applied is undone or
  // trained again.
  void ContinueInPlace() { in_place_ = true; }
  bool planned() const { return !planned_.empty(); }
  bool in_place() const { return in_place_; }
  // The next attempt begins after this many steps and examples of the job, at the checkpoint in
  // `dir`; empty: at its beginning. All else is trained again, so no update of the attempt before
  // is missing. Counts a planned attempt as a scaling, one in place as nothing, and every other one
  // as a rollback.
  void BeginAttempt(uint64_t steps, uint64_t examples, const std::string& dir);
  // Pserver `index` of the present attempt reports this many lost updates (HostedJob.updates_lost).
  // The number never falls, since a shard that is restored once more lacks what it lacked before.
  // Returns true when that changes the counts.
  bool NoteLost(uint32_t index, uint64_t updates);
  // Counts examples that are trained again after the loss of a worker.
  void CountReplayed(uint64_t examples);
  // Says what became of the loss that was counted last, or of the loss of `lost`.
  void Describe(const std::string& outcome) { Describe(lost_, outcome); }
  void Describe(const std::string& lost, const std::string& outcome);

  // Points of the curves after an epoch (from 1); none while nothing was lost. `replayed`: examples
  // that the job trained again when it was submitted to continue from a checkpoint.
  std::vector<Scalar> Points(uint64_t epoch, uint64_t replayed) const;

  uint64_t losses() const { return counts_.worker_losses() + counts_.pserver_losses(); }
  // Losses within the kLossWindow before `now`: those that count for recovery.max_losses. An
  // occasional loss must not end a job of weeks.
  static constexpr absl::Duration kLossWindow = absl::Hours(24);
  uint64_t RecentLosses(absl::Time now) const;
  // When the losses of the last kLossWindow were counted, the oldest first.
  const std::vector<absl::Time>& losses_at() const { return losses_at_; }
  const Recovery& counts() const { return counts_; }
  uint64_t steps_reached() const { return steps_reached_; }
  uint64_t examples_reached() const { return examples_reached_; }

  // REQUIRES: `job` owns this recovery and awaits members. Its own workers and those that it has
  // reserved are allocated to it.
  Decision Decide(const Job& job, const Membership& members, const PauseDetector& pauses,
                  absl::Duration wait, absl::Time now) const;

 private:
  // The job's history keeps this many events.
  static constexpr int kMostEvents = 50;
  void AddEvent(const std::string& text);
  // Notes `text` as what happened last. It replaces the newest event that begins with `subject`, or
  // is added as another one.
  void NoteLast(const std::string& subject, const std::string& text);

  Recovery counts_;
  std::vector<absl::Time> losses_at_;
  std::string lost_;                    // the last member lost, and why; or what is planned
  std::string planned_;                 // what the next attempt is for; empty: it makes a loss good
  bool in_place_ = false;               // by ContinueInPlace
  std::vector<uint64_t> updates_lost_;  // by pserver
  uint64_t steps_reached_ = 0, examples_reached_ = 0;
  absl::Time since_ = absl::InfiniteFuture();
};

}  // namespace sluice
