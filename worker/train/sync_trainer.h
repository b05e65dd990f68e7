// Trains in sync mode: push(t) to every pserver, then commit(t) fused with pull(t + 1).
//
// Without tables on pservers there is nothing to push or to pull, and the ranks commit among
// themselves (StepCommit).
//
// A checkpoint is cut after a step: rank 0's commit asks for it, and when the step has closed with
// its number, every rank records its part before it computes the next step. The one of an epoch's
// end is cut by order of the scheduler, so each rank keeps its state after the last step.
//
// When a program has ended the job, a rank stops after the last step. A rank that has made the step
// after it drops that step, which never closes: its state is that after the last one. It learns
// that when it has committed the step, or while the ranks exchange gradients of tables that they
// keep.
//
// A rank that replaces another one first repeats that rank's last commit. A pserver may not have
// got it, although another one has, and then no pserver can close the step without it.
//
// Thread safety: one thread.
#pragma once

#include <memory>

#include "worker/step/net_step.h"
#include "worker/train/step_commit.h"
#include "worker/train/trainer.h"

namespace sluice {

class SyncTrainer : public Trainer {
 public:
  explicit SyncTrainer(const JobContext& context);
  absl::Status Train(const EpochPlan& plan, BatchQueue* queue) override;
  absl::Status EndEpoch(uint32_t epoch) override { return context_.client->EndEpoch(epoch); }

 private:
  // Call right after the step before `step` has closed. Records this rank's part of the checkpoint
  // that is cut after that step, if there is one and that is news. `keeps_state`: keeps the state
  // after that step as well (WorkerCuts::KeepState).
  absl::Status RecordCut(const EpochPlan& plan, uint64_t step, bool keeps_state);
  // Waits until the step before `step` has closed, and for the values of the pull. False: it never
  // will, because the job ends before it.
  absl::StatusOr<bool> AwaitClosed(uint64_t step);
  // The job ends after the step before `step`, which has closed.
  absl::Status EndAfter(const EpochPlan& plan, uint64_t step);
  // Likewise after the step before that one, since this one, which the rank has made, never closes.
  absl::Status DropStep(const EpochPlan& plan, uint64_t step);
  // Starts the commit of the step before `next_step`, with the pull of `next` for the step after
  // it. The pull is empty when `next` is null.
  absl::Status StartCommit(uint64_t next_step, const BatchQueue::Item& next, StepBuffers* values,
                           uint64_t checkpoint);

  const JobContext& context_;
  const bool keeps_state_;  // sync_configs.on_worker_loss: SHRINK
  const std::unique_ptr<StepCommit> commit_;
  NetStep step_;
};

}  // namespace sluice
