// The meetings of the ranks that keep the dense tables of a job: they find each other, and agree
// where to continue after a loss.
//
// Thread safety: one thread, except Ask, AddTo, EndAfter and asked().
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/collective/collective.h"
#include "proto/pserver.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// The step that closed last. Every rank knows it in a job whose ranks close the steps among
// themselves.
struct ClosedStep {
  uint64_t steps = 0;               // global steps that have closed; 0: nothing is known
  uint64_t checkpoint = 0;          // cut after the step; 0: none
  std::vector<TrainTotals> totals;  // by rank, the step included
};

class RankMeetings {
 public:
  virtual ~RankMeetings() = default;

  // The present group.
  virtual Collective* collective() = 0;
  virtual uint32_t rank() const = 0;
  virtual uint32_t ranks() const = 0;

  // Takes the newest generation and cards from the scheduler (RankGroup).
  virtual void Ask(uint64_t generation, const RankGroupCards& cards) = 0;
  // Adds this rank's state to a report.
  virtual void AddTo(PollRequest* report) const = 0;

  // True when Attend has something to do.
  virtual const std::atomic<bool>& asked() const = 0;
  // Takes part in the next meeting as far as possible, without waiting for the other ranks' cards.
  // To be called while this rank waits for something else. May close a step.
  virtual absl::Status Attend() = 0;
  // Meets the other ranks for the first time; later as Attend. `committed`: the number of steps
  // that an earlier life of this rank is known to have committed; 0: unknown.
  virtual absl::Status Meet(uint64_t committed) = 0;
  // An operation of the group for global step `step` (from 1; 0: for none) has failed with `why`.
  // Waits for the next group, and meets the others there. Returns `why` if it has another reason
  // than the loss of a rank, and if training ends with or before that step.
  virtual absl::Status Recover(const absl::Status& why, uint64_t step) = 0;
  // Tells the scheduler that the job cannot continue in place, and returns `why`.
  virtual absl::Status GiveUp(const absl::Status& why) = 0;

  // Training ends early: no step after the first `steps` ones closes. Safe from any thread.
  virtual void EndAfter(uint64_t steps) = 0;
  // Global step `step` (from 1) never closes.
  virtual bool NeverCloses(uint64_t step) const = 0;
  // Runs an operation of the present group that global step `step` (from 1) needs in order to
  // close. It ends with an error when the step never closes.
  virtual absl::Status RunFor(uint64_t step, absl::FunctionRef<absl::Status()> operation) = 0;

  // Global steps whose updates the tables have.
  virtual uint64_t closed() const = 0;
  // This rank has the mean gradients of step closed().
  virtual bool has_means() const = 0;
  // For StepCommit, which writes it, and Meet, which brings it to a rank that has joined later.
  virtual ClosedStep* newest() = 0;
};

}  // namespace sluice
