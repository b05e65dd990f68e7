#include "worker/data/own_batches.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {

OwnSteps::OwnSteps(const JobContext& context, uint32_t epoch, uint64_t steps, uint64_t first_step)
    : context_(context), epoch_(epoch), steps_(steps), step_(first_step) {}

absl::StatusOr<BatchSource::Fill> OwnSteps::Next() {
  if (step_ >= steps_) return Fill();
  if (source_ == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(source_, context_.own_data->Train(context_, epoch_, step_, &stopped_));
  }
  Fill fill;
  if (!ended_) {
    SLUICE_ASSIGN_OR_RETURN(fill, source_->Next());
    if (!fill) {
      ended_ = true;
      context_.log(absl::StrCat("the source of this rank ended after ", step_, " of ", steps_,
                                " batches of epoch ", epoch_ + 1,
                                "; it adds nothing to the steps that are left"));
    }
  }
  ++step_;
  if (fill) return fill;
  const FeatureSchema& schema = *context_.model->schema();
  return Fill([&schema](PreparedBatch* prepared) {
    prepared->batch.Reset(schema.numerics().size(), schema.slots().size());
    prepared->last_of_task = false;
    return absl::OkStatus();
  });
}

OwnTasks::OwnTasks(const JobContext& context, uint32_t epoch, TaskLeases::Pace* pace)
    : context_(context), epoch_(epoch), leases_(context, epoch, pace) {}

absl::StatusOr<bool> OwnTasks::OpenNext() {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<DataTask> task, leases_.Next());
  if (!task.has_value()) return false;
  task_ = task->id();
  next_ = task->first_offset();
  context_.stats->AddTask(task_, WorkerStats::TaskData());
  SLUICE_ASSIGN_OR_RETURN(source_, context_.own_data->Train(context_, epoch_, next_, &stopped_));
  return true;
}

absl::StatusOr<BatchSource::Fill> OwnTasks::NextOfTask() {
  const uint64_t most = context_.own_data->epoch_steps();
  if (most > 0 && next_ >= most) return Fill();
  return source_->Next();
}

absl::StatusOr<BatchSource::Fill> OwnTasks::Next() {
  for (;;) {
    if (source_ == nullptr) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, OpenNext());
      if (!more) return Fill();
    }
    SLUICE_ASSIGN_OR_RETURN(Fill fill, NextOfTask());
    if (fill) {
      return Fill([fill = std::move(fill), task = task_, end = ++next_](PreparedBatch* prepared) {
        SLUICE_RETURN_IF_ERROR(fill(prepared));
        prepared->batch.task_id = task;
        prepared->batch.task_end = end;
        prepared->last_of_task = false;
        return absl::OkStatus();
      });
    }
    ended_.emplace_back(task_, next_);
    source_ = nullptr;
  }
}

void OwnTasks::DropLeased() {
  leases_.Drop();
  source_ = nullptr;
}

absl::StatusOr<bool> OwnTasks::ReportTrained() {
  for (; !ended_.empty(); ended_.pop_front())
    leases_.Trained(ended_.front().first, ended_.front().second);
  while (leases_.has_reports()) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, OpenNext());
    if (more) return true;
  }
  return false;
}

}  // namespace sluice
