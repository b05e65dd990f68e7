#include "worker/service/rank_data.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"
#include "worker/data/data_index.h"
#include "worker/data/lane_batches.h"
#include "worker/data/own_batches.h"
#include "worker/data/prefetcher.h"

namespace sluice {

RankData::RankData(JobContext* context, Env* env, std::string host)
    : context_(*context), env_(env), host_(std::move(host)) {}

absl::Status RankData::Open(const JobConfig& config, std::shared_ptr<const FeatureSchema> schema,
                            OwnData* own_data) {
  if (!ProgramGivesData(config)) {
    SLUICE_ASSIGN_OR_RETURN(files_, DataSource::Create(config.data(), std::move(schema), env_));
    context_.data = files_.get();
    return absl::OkStatus();
  }
  context_.own_data = own_data;
  if (own_data != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the program of this job gives the data, but this worker has no source; give "
      "sluice.torch.worker(..., source=...) in every worker");
}

absl::StatusOr<IndexReport> RankData::SeeFiles() {
  IndexReport report;
  SLUICE_ASSIGN_OR_RETURN(context_.files, DataFiles::See(context_.config(), env_));
  if (files_ != nullptr) files_->Expect(context_.files);
  context_.files->Report(&report);
  report.set_host(host_);
  return report;
}

absl::StatusOr<IndexReport> RankData::Index() {
  SLUICE_ASSIGN_OR_RETURN(IndexReport report, SeeFiles());
  if (context_.config().evaluate_only()) return report;
  if (context_.own_data != nullptr) return IndexSource(std::move(report));
  SLUICE_RETURN_IF_ERROR(IndexTrainingData(context_, &table_, &report));
  indexed_ = true;
  return report;
}

absl::StatusOr<IndexReport> RankData::IndexSource(IndexReport report) {
  indexed_ = true;
  // Otherwise each rank ends its epoch by itself, and nobody needs the number.
  if (context_.mode != Mode::kSync) return report;
  SLUICE_ASSIGN_OR_RETURN(uint64_t steps, context_.own_data->CountBatches(context_));
  if (const uint64_t most = context_.own_data->epoch_steps(); most > 0) {
    if (steps > most) {
      context_.log(absl::StrCat("the source of this rank has ", steps, " batches in an epoch; ",
                                steps - most, " are left out, since epoch_steps is ", most));
    }
    steps = most;
  }
  report.set_examples(steps);
  return report;
}

absl::Status RankData::Prepare() {
  SLUICE_RETURN_IF_ERROR(context_.files->CheckAllUnchanged(context_.files->train()));
  if (!indexed_ && context_.own_data == nullptr)
    SLUICE_RETURN_IF_ERROR(ListTrainingData(context_, &table_));
  indexed_ = true;
  return absl::OkStatus();
}

absl::Status RankData::TrainSteps(const EpochPlan& plan, const Phase& phase, Trainer* trainer,
                                  uint64_t* dropped) {
  // The table comes with the first TRAIN only; later epochs use the same one.
  if (phase.has_pieces()) SLUICE_RETURN_IF_ERROR(UsePieces(phase.pieces(), &table_));
  if (phase.skip_steps() > phase.global_steps()) {
    return absl::InternalError(absl::StrCat("the scheduler asks to skip ", phase.skip_steps(),
                                            " of ", phase.global_steps(), " steps of an epoch"));
  }
  const uint64_t steps = phase.global_steps(), done = phase.skip_steps();
  std::unique_ptr<BatchSource> source;
  if (context_.own_data != nullptr) {
    source = std::make_unique<OwnSteps>(context_, phase.epoch(), steps, done);
  } else {
    source = std::make_unique<LaneBatches>(context_, table_, phase.epoch(), steps, done);
  }
  {
    Prefetcher prefetcher(context_, source.get());
    SLUICE_RETURN_IF_ERROR(trainer->Train(plan, prefetcher.queue()));
  }
  *dropped = source->dropped();
  return absl::OkStatus();
}

absl::Status RankData::TrainTasks(const EpochPlan& epoch, Trainer* trainer, uint64_t* dropped) {
  std::unique_ptr<TaskSource> source;
  if (context_.own_data != nullptr) {
    source = std::make_unique<OwnTasks>(context_, epoch.epoch, &task_pace_);
  } else {
    source = std::make_unique<TaskBatches>(context_, epoch.epoch, &task_pace_);
  }
  EpochPlan plan = epoch;
  plan.task_trained = [&source](uint64_t task, uint64_t examples) {
    source->TaskTrained(task, examples);
  };
  for (;;) {
    {
      Prefetcher prefetcher(context_, source.get());
      SLUICE_RETURN_IF_ERROR(trainer->Train(plan, prefetcher.queue()));
    }
    if (context_.ends_after(0)) source->DropLeased();
    // With the last reports the scheduler may hand out tasks that a lost rank had leased.
    SLUICE_ASSIGN_OR_RETURN(const bool more, source->ReportTrained());
    if (!more) break;
  }
  *dropped = source->dropped();
  return absl::OkStatus();
}

}  // namespace sluice
