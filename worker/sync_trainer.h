// Trains in sync mode: push(t) to every pserver, then commit(t) fused with pull(t + 1).
//
// A checkpoint is cut after a step: rank 0's commit asks for it, and when the answer names it,
// every rank records its part before it computes the next step.
//
// A rank that replaces another one first repeats that rank's last commit. A pserver may not have
// got it, although another one has, and then no pserver can close the step without it.
//
// Thread safety: one thread.
#pragma once

#include "worker/net_step.h"
#include "worker/trainer.h"

namespace sluice {

class SyncTrainer : public Trainer {
 public:
  explicit SyncTrainer(const JobContext& context) : context_(context), step_(context) {}
  absl::Status Train(const EpochPlan& plan, BatchQueue* queue) override;
  absl::Status EndEpoch(uint32_t epoch) override { return context_.client->EndEpoch(epoch); }

 private:
  // Records this rank's part of the checkpoint whose cut the step before `step` made, if it made
  // one and that is news. Right after the answer to that step's commit.
  void RecordCut(const EpochPlan& plan, uint64_t step);
  // Starts the commit of the step before `next_step`, with the pull of `next` for the step after
  // it. The pull is empty when `next` is null.
  ParameterClient::Ticket StartCommit(uint64_t next_step, const BatchQueue::Item& next,
                                      StepBuffers* values, uint64_t checkpoint);

  const JobContext& context_;
  NetStep step_;
};

}  // namespace sluice
