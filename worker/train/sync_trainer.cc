#include "worker/train/sync_trainer.h"

#include <optional>
#include <utility>

#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
#include "worker/step/source_state_file.h"

namespace sluice {

SyncTrainer::SyncTrainer(const JobContext& context)
    : context_(context),
      keeps_state_(context.config().strategy().sync_configs().on_worker_loss() ==
                   SyncConfigs::SHRINK),
      commit_(StepCommit::Create(context)),
      step_(context) {}

absl::Status SyncTrainer::RecordCut(const EpochPlan& plan, uint64_t step, bool keeps_state) {
  // Before the first batch nothing was committed here, unless this rank repeats a commit.
  if (context_.cuts == nullptr || (step == plan.first_step && plan.commit_again == 0))
    return absl::OkStatus();
  // The checkpoint that the step which has just closed was committed with. All ranks see the same
  // one.
  const uint64_t number = commit_->checkpoint_seen();
  const bool makes_part = context_.cuts->IsNew(number);
  if (!makes_part && !keeps_state) return absl::OkStatus();
  WorkerState state;
  *state.mutable_train() = context_.stats->ReportAfter(plan.steps_done + (step - plan.first_step));
  SLUICE_ASSIGN_OR_RETURN(*state.mutable_net_state(), context_.net->SaveState());
  const WorkerCuts::SaveTables save = [dense = context_.dense, step](uint64_t checkpoint,
                                                                     WorkerCuts::TablesSaved done) {
    dense->SaveCheckpoint(checkpoint, step, std::move(done));
  };
  if (makes_part) {
    // Not in the state that is kept, since the file belongs to this checkpoint alone.
    WorkerState part = state;
    const absl::Status added =
        AddSourceState(context_, plan.epoch, plan.steps_done + (step - plan.first_step),
                       CheckpointFolder(CheckpointRoot(context_.config()), step),
                       CheckpointSaveId(context_.spec->instance(), number), &part);
    if (!added.ok()) context_.cuts->RecordError(number, Printable(added.message()));
    const auto record = [cuts = context_.cuts, number, step, state = part](
                            const absl::StatusOr<std::vector<SavedFile>>& files) mutable {
      if (!files.ok()) return cuts->RecordError(number, std::string(files.status().message()));
      state.mutable_dense_files()->Assign(files->begin(), files->end());
      cuts->Record(number, step, std::move(state));
    };
    // One rank writes the files of the tables that all keep.
    if (context_.rank == 0) {
      save(number, record);
    } else {
      context_.cuts->Record(number, step, part);
    }
  }
  if (keeps_state) context_.cuts->KeepState(step, std::move(state), save);
  return absl::OkStatus();
}

absl::Status SyncTrainer::StartCommit(uint64_t next_step, const BatchQueue::Item& next,
                                      StepBuffers* values, uint64_t checkpoint) {
  PullRequest pull;
  if (next) pull = step_.MakePull(next, values);
  return commit_->Start(next_step - 1, std::move(pull), checkpoint);
}

absl::StatusOr<bool> SyncTrainer::AwaitClosed(uint64_t step) {
  StageTimer timer(context_.stats, Stage::kPullWait);
  const TrainingEnd* const end = context_.end;
  if (end != nullptr && !end->known()) {
    const std::optional<absl::Status> closed = commit_->WaitUnless(end->known());
    if (closed.has_value()) {
      SLUICE_RETURN_IF_ERROR(*closed);
      return true;
    }
  }
  if (end != nullptr && end->NeverCloses(step)) {
    commit_->Drop();
    return false;
  }
  SLUICE_RETURN_IF_ERROR(commit_->Wait());
  return true;
}

absl::Status SyncTrainer::EndAfter(const EpochPlan& plan, uint64_t step) {
  return RecordCut(plan, step, /*keeps_state=*/true);
}

absl::Status SyncTrainer::DropStep(const EpochPlan& plan, uint64_t step) {
  context_.stats->DropStep();
  context_.net->DropStep();
  // A life that only repeated the commit does not know the state without the step.
  return step > plan.first_step ? EndAfter(plan, step - 1) : absl::OkStatus();
}

absl::Status SyncTrainer::Train(const EpochPlan& plan, BatchQueue* queue) {
  uint64_t global_step = plan.first_step;
  SLUICE_ASSIGN_OR_RETURN(BatchQueue::Item prepared, queue->Pop());
  if (!prepared && plan.commit_again == 0) return absl::OkStatus();
  std::shared_ptr<StepBuffers> values = prepared ? step_.TakeBuffers(*prepared) : nullptr;
  if (plan.commit_again > 0) {
    SLUICE_RETURN_IF_ERROR(StartCommit(global_step, prepared, values.get(), /*checkpoint=*/0));
  } else {
    commit_->StartPull(step_.MakePull(prepared, values.get()));
  }
  NetStep::Ready ready;
  if (context_.dense->leaves_early()) {
    ready = [this](const std::shared_ptr<StepBuffers>& gradients, double weight, size_t i) {
      context_.dense->Ready(*gradients, weight, i);
    };
  }
  bool committed = plan.commit_again > 0;  // a step whose dense tables are not closed yet
  while (prepared) {
    if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
    StepTimer step(context_.stats);
    SLUICE_ASSIGN_OR_RETURN(const bool closed, AwaitClosed(global_step));
    if (!closed) return DropStep(plan, global_step);
    // The step before has closed for all ranks. Its update comes first, then its cut, then the next
    // gradients: a cut holds the tables exactly after that step.
    if (committed) SLUICE_RETURN_IF_ERROR(context_.dense->CloseStep(global_step));
    SLUICE_RETURN_IF_ERROR(RecordCut(plan, global_step, keeps_state_));
    if (context_.ends_after(global_step)) return EndAfter(plan, global_step);
    step_.Announce(queue->Peek());
    double weight = 0;
    SLUICE_ASSIGN_OR_RETURN(
        std::shared_ptr<StepBuffers> gradients,
        step_.Run(*prepared, plan.epoch, step_.InputOf(*values), &weight, ready));
    if (step_.program_left()) {
      SLUICE_RETURN_IF_ERROR(context_.end_training(global_step));
      return EndAfter(plan, global_step);
    }
    // The ranks reduce gradients of dense tables that workers keep while the push is under way.
    // Push returns when every pserver has acknowledged it, and Exchange when this rank has the
    // means. Only then may the commit leave: a commit on any shard promises that every shard has
    // the push, and one to the other ranks that this rank can make the update.
    {
      StageTimer timer(context_.stats, Stage::kPushWait);
      context_.dense->Send(global_step, gradients.get(), weight);
      SLUICE_RETURN_IF_ERROR(
          commit_->Push(global_step, step_.MakePush(prepared, gradients, weight)));
      const absl::Status exchanged = context_.dense->Exchange(global_step, gradients.get(), weight);
      // The rank that has ended the job does not take part in this step.
      if (!exchanged.ok() && context_.end != nullptr && context_.end->NeverCloses(global_step + 1))
        return DropStep(plan, global_step + 1);
      SLUICE_RETURN_IF_ERROR(exchanged);
    }
    committed = true;
    SLUICE_ASSIGN_OR_RETURN(prepared, queue->Pop());
    if (prepared) values = step_.TakeBuffers(*prepared);
    const bool asks = context_.cuts != nullptr && context_.rank == 0;
    const uint64_t checkpoint = asks ? context_.cuts->ForCommit(global_step + 1) : 0;
    ++global_step;
    SLUICE_RETURN_IF_ERROR(StartCommit(global_step, prepared, values.get(), checkpoint));
  }
  SLUICE_ASSIGN_OR_RETURN(const bool closed, AwaitClosed(global_step));
  if (!closed) return DropStep(plan, global_step);
  // Now also the last step has closed: every shard has applied it.
  if (committed) SLUICE_RETURN_IF_ERROR(context_.dense->CloseStep(global_step));
  return RecordCut(plan, global_step, /*keeps_state=*/true);
}

}  // namespace sluice
