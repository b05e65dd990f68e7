#include "worker/sync_trainer.h"

#include <utility>

#include "common/base/status_macros.h"

namespace sluice {

void SyncTrainer::RecordCut(const EpochPlan& plan, uint64_t step) {
  if (context_.cuts == nullptr || step == plan.first_step) return;
  const uint64_t number = context_.client->checkpoint_seen();
  if (!context_.cuts->IsNew(number)) return;
  WorkerState state;
  *state.mutable_train() = context_.stats->ReportAfter(plan.steps_done + (step - plan.first_step));
  state.set_net_state(context_.net->SaveState());
  context_.cuts->Record(number, step, std::move(state));
}

absl::Status SyncTrainer::Train(const EpochPlan& plan, BatchQueue* queue) {
  uint64_t global_step = plan.first_step;
  SLUICE_ASSIGN_OR_RETURN(BatchQueue::Item prepared, queue->Pop());
  if (!prepared) return absl::OkStatus();
  std::shared_ptr<StepBuffers> values = step_.TakeBuffers(*prepared);
  ParameterClient::Ticket ticket =
      context_.client->StartPull(step_.MakePull(KeysOf(prepared), values.get()));
  while (prepared) {
    if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
    StepTimer step(context_.stats);
    {
      StageTimer timer(context_.stats, Stage::kPullWait);
      SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(ticket));
    }
    RecordCut(plan, global_step);
    step_.Announce(queue->Peek());
    double weight = 0;
    SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<StepBuffers> gradients,
                            step_.Run(*prepared, plan.epoch, NetStep::InputOf(*values), &weight));
    // PushStep returns when every pserver has acknowledged the push. Only then may the commit
    // leave: a commit on any shard promises that every shard has the push.
    {
      StageTimer timer(context_.stats, Stage::kPushWait);
      SLUICE_RETURN_IF_ERROR(
          context_.client->PushStep(global_step, step_.MakePush(prepared, gradients, weight)));
    }
    SLUICE_ASSIGN_OR_RETURN(prepared, queue->Pop());
    // Without a next batch the commit pulls nothing.
    PullRequest next;
    if (prepared) {
      values = step_.TakeBuffers(*prepared);
      next = step_.MakePull(KeysOf(prepared), values.get());
    }
    const bool asks = context_.cuts != nullptr && context_.rank == 0;
    const uint64_t checkpoint = asks ? context_.cuts->ForCommit(global_step + 1) : 0;
    ticket = context_.client->StartCommit(global_step, std::move(next), checkpoint);
    ++global_step;
  }
  // When the last step's commit is answered, every shard has applied the step.
  {
    StageTimer timer(context_.stats, Stage::kPullWait);
    SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(ticket));
  }
  RecordCut(plan, global_step);
  return absl::OkStatus();
}

}  // namespace sluice
