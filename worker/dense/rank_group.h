// This rank's place in the group of the ranks that keep the dense tables.
//
// A group has the generation of the job's route. When a rank is lost, the operations of the group
// end with errors and the scheduler raises the generation. Then all ranks, with the next life of
// the lost one, form the next group:
//
//   1. Ask      the scheduler tells the new generation. Operations of the old group end.
//   2. Attend   Listen; this rank's card goes with its reports.
//   3. Ask      the scheduler tells the cards of all ranks.
//   4. Attend   Join; then the ranks agree where they continue.
//
// The first group of a job is formed in the same way. Another loss meanwhile leads back to 1.
//
// When training ends early (EndAfter), no step after the last one closes. A rank that waits in the
// group for such a step leaves the group. Others may see that before they know of the end, so they
// wait for the scheduler as after a loss. Another loss leads to the next group as before.
//
// If the scheduler knows of no loss in time, the group has failed for another reason, such as a
// broken connection. The rank then gives up, and the job goes back to its newest checkpoint.
//
// Thread safety: Attend, Await, GiveUp and the operations of the collective are for one thread; the
// other methods are safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/collective/collective.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class RankGroup {
 public:
  struct Options {
    std::string job_id;
    uint32_t rank = 0, ranks = 1;
    uint64_t incarnation = 0;
    uint64_t generation = 0;       // of the route in the assignment
    bool holds_tables = false;     // before the rank meets the others
    absl::Duration patience;       // how long the scheduler may take to notice that a rank is lost
    Clock* clock = Clock::Real();  // outlives the group
    // Adds to a report what this rank knows of the steps that have closed. Called on the training
    // thread when the rank has left a group. May be null.
    std::function<void(RankGroupReport*)> add_standing;
    std::function<void()> report_soon;            // when a report should not wait; may be null
    std::function<void(const std::string&)> log;  // may be null
  };
  RankGroup(std::unique_ptr<Collective> collective, Options options);

  // Takes the newest generation and cards from the scheduler. `cards`: of the group, once all ranks
  // have theirs; else empty.
  void Ask(uint64_t generation, const RankGroupCards& cards);
  // True when Attend has something to do.
  const std::atomic<bool>& asked() const { return asked_; }
  // Adds how far this rank is to a report.
  void AddTo(PollRequest* report) const;
  void Cancel();
  // No step after the first `steps` ones closes. The least of several calls counts.
  void EndAfter(uint64_t steps);
  // Global step `step` (from 1) never closes.
  bool NeverCloses(uint64_t step) const;
  // Names what a waiting call waits for; "": none waits.
  std::string WaitingFor() const;

  // Agrees with the other ranks where they continue, once the group is joined. `closed`: global
  // steps that have closed, as far as the scheduler knows. ABORTED: they cannot continue in place,
  // which the scheduler is told. After another error the ranks meet again in the next group.
  using Agree = absl::FunctionRef<absl::Status(Collective& collective, uint64_t closed)>;
  // Called when the job continues without a lost rank, so that the ranks do not meet. `closed`: the
  // number of steps that have closed. Returns true if that is news to this rank.
  using Told = absl::FunctionRef<bool(uint64_t closed)>;
  // Does what can be done now for the newest generation, without waiting for the scheduler.
  absl::Status Attend(Agree agree, Told told);
  // Waits for the next group, and joins it. Returns also when `told` is true. `why`: the error that
  // has ended the present group. When the scheduler knows of no loss in time, the rank gives up,
  // and `why` is returned. OK: there is no group yet. CANCELLED. Returns `why` soon as well when
  // training ends with or before global step `step` (from 1), which the group was to close; 0: none.
  absl::Status Await(const absl::Status& why, uint64_t step, Agree agree, Told told);
  // Runs an operation of the group that global step `step` (from 1) needs in order to close. Leaves
  // the group, so that the operation ends with an error, when the step never closes.
  absl::Status RunFor(uint64_t step, absl::FunctionRef<absl::Status()> operation);
  // Tells the scheduler that the job cannot continue in place.
  void GiveUp(const std::string& why);

  Collective* collective() const { return collective_.get(); }
  uint32_t rank() const { return options_.rank; }
  uint32_t ranks() const { return options_.ranks; }
  bool joined() const { return Joined() > 0; }  // some group

 private:
  // True: the ranks have been told that a step has closed.
  absl::StatusOr<bool> Advance(Agree agree, Told told);
  absl::Status Listen();
  absl::Status Join(const RankGroupCards& cards, Agree agree);
  void Report(absl::FunctionRef<void(RankGroupReport*)> change);
  // Waits until the scheduler has told a generation above `generation`. When it has not within the
  // patience, gives up and returns `why`, the error that has ended the group. `step`: as in Await.
  // CANCELLED.
  absl::Status AwaitGeneration(uint64_t generation, const absl::Status& why, uint64_t step);
  uint64_t Joined() const;
  // This rank has left its group, and waits for the next one.
  bool Left() const;

  const Options options_;
  const std::unique_ptr<Collective> collective_;
  std::atomic<bool> asked_{true};  // relaxed: a hint; what it is about is under the mutex
  // Held while the collective listens, so that Ask never cancels a group that is newer than the
  // generation it brings.
  mutable Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_step_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;  // of EndAfter
  uint64_t runs_for_ ABSL_GUARDED_BY(mutex_) = 0;            // the step of RunFor; 0: none runs
  uint64_t wanted_ ABSL_GUARDED_BY(mutex_);
  uint64_t listened_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t joined_ ABSL_GUARDED_BY(mutex_) = 0;  // the newest group that this rank has been in
  RankGroupCards cards_ ABSL_GUARDED_BY(mutex_);
  RankGroupReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
