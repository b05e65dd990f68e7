#include "worker/batch_source.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr uint64_t kAllText = std::numeric_limits<uint64_t>::max();
constexpr absl::Duration kSchedulerPatience = absl::Seconds(20);

uint64_t EpochSeed(const JobContext& context, uint32_t epoch) {
  return CombineHash(CombineHash(context.config().train().seed(), 0x6F72646572), epoch);
}

bool Shuffled(const JobContext& context) { return context.config().data().shuffle(); }

// Gradient sums are cut at multiples of this many positions of the global batch, so that up to 16 workers
// add the same partial sums; at least 16, below which cuts cost more than they are worth.
size_t ChunkOf(uint64_t global_batch) { return std::max<uint64_t>(16, global_batch / 16); }

absl::Status CheckBadLines(const JobContext& context, const BadLines& bad) {
  if (bad.count <= context.config().data().max_bad_lines()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the data has more malformed lines than data.max_bad_lines = ", context.config().data().max_bad_lines(),
      "; mend the data or raise the limit: ", bad.Describe()));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FilesOfRank(const JobContext& context) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::string> files, ExpandFiles(context.config().data().train_files()));
  if (context.mode == Mode::kSync && context.config().data().assignment() == DataConfig::GLOBAL) return files;
  std::vector<std::string> mine;
  for (size_t i = context.rank; i < files.size(); i += context.worker_num()) mine.push_back(files[i]);
  return mine;
}

absl::Status LoadExamples(const JobContext& context, const std::vector<std::string>& files, Batch* examples,
                          BadLines* bad) {
  const FeatureSchema& schema = *context.model->schema();
  examples->Reset(schema.numerics().size(), schema.slots().size());
  for (const std::string& file : files) {
    StageTimer timer(context.stats, Stage::kRead);
    SLUICE_RETURN_IF_ERROR(context.data->ReadPiece(file, 0, kAllText, /*need_label=*/true, examples, bad));
  }
  return CheckBadLines(context, *bad);
}

PermutedBatches::PermutedBatches(const JobContext& context, const Batch* examples, uint32_t epoch, uint64_t steps)
    : context_(context),
      examples_(examples),
      order_(examples->n, EpochSeed(context, epoch)),
      steps_(steps),
      per_rank_(context.config().data().assignment() == DataConfig::PER_RANK_FILES),
      global_batch_(static_cast<uint64_t>(context.config().train().batch_size()) *
                    (per_rank_ ? 1 : context.worker_num())) {}

absl::StatusOr<bool> PermutedBatches::Next(PreparedBatch* prepared) {
  if (step_ == steps_) return false;
  Batch* batch = &prepared->batch;
  batch->Reset(examples_->num_numeric, examples_->num_slots);
  const uint64_t begin = std::min<uint64_t>(step_ * global_batch_, examples_->n);
  const uint64_t end = std::min<uint64_t>(begin + global_batch_, examples_->n);
  const uint64_t size = end - begin;
  const uint64_t slices = per_rank_ ? 1 : context_.worker_num();
  const uint64_t slice = per_rank_ ? 0 : context_.rank;
  // A full batch splits evenly; the short last one as evenly as it can, empty slices allowed.
  uint64_t first = begin + size * slice / slices, last = begin + size * (slice + 1) / slices;
  if (context_.config().data().drop_last() && size < global_batch_) last = first;
  for (uint64_t i = first; i < last; ++i) {
    const uint64_t example = Shuffled(context_) ? order_(i) : i;
    batch->Append(*examples_, example, example);
  }
  batch->first_position = first - begin;
  batch->chunk = ChunkOf(global_batch_);
  prepared->last_of_task = false;
  ++step_;
  return true;
}

uint64_t PermutedBatches::dropped() const {
  if (!context_.config().data().drop_last()) return 0;
  // With GLOBAL every rank sees all examples: rank 0 speaks for all.
  return per_rank_ || context_.rank == 0 ? examples_->n % global_batch_ : 0;
}

TaskBatches::TaskBatches(const JobContext& context, uint32_t epoch) : context_(context), epoch_(epoch) {}

void TaskBatches::TaskTrained(uint64_t task_id, uint64_t examples) {
  MutexLock lock(&mutex_);
  trained_.emplace_back(task_id, examples);
}

absl::StatusOr<NextTaskReply> TaskBatches::AskScheduler(uint64_t finished, uint64_t examples) {
  NextTaskRequest request;
  request.set_job_id(context_.spec->job_id());
  request.set_rank(context_.rank);
  request.set_incarnation(context_.incarnation);
  request.set_epoch(epoch_);
  request.set_finished_task(finished);
  request.set_finished_examples(examples);
  // A call that is tried again keeps its number: the task of a lost reply is answered again, not lost.
  request.set_number(++calls_);
  const absl::Time give_up = absl::Now() + kSchedulerPatience;
  for (;;) {
    absl::StatusOr<NextTaskReply> reply = context_.scheduler->NextTask(request);
    if (reply.ok() && reply->kind() != NextTaskReply::WAIT) return reply;
    if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
    if (!reply.ok() && (!absl::IsUnavailable(reply.status()) || absl::Now() > give_up)) return reply.status();
    if (reply.ok()) request.set_number(++calls_);  // WAIT was the answer: a new question
    absl::SleepFor(absl::Milliseconds(100));
  }
}

absl::StatusOr<bool> TaskBatches::LeaseTask() {
  std::pair<uint64_t, uint64_t> finished = {0, 0};
  {
    MutexLock lock(&mutex_);
    if (!trained_.empty()) {
      finished = trained_.front();
      trained_.pop_front();
    }
  }
  SLUICE_ASSIGN_OR_RETURN(NextTaskReply reply, AskScheduler(finished.first, finished.second));
  if (reply.kind() == NextTaskReply::EPOCH_DONE) return false;
  SLUICE_RETURN_IF_ERROR(LoadTask(reply.task()));
  return true;
}

absl::Status TaskBatches::LoadTask(const DataTask& task) {
  StageTimer timer(context_.stats, Stage::kRead);
  const FeatureSchema& schema = *context_.model->schema();
  task_ = task;
  examples_.Reset(schema.numerics().size(), schema.slots().size());
  BadLines bad;
  SLUICE_RETURN_IF_ERROR(
      context_.data->ReadPiece(task.path(), task.begin(), task.end(), /*need_label=*/true, &examples_, &bad));
  context_.stats->AddBadLines(bad);
  if (bad.count > 0) context_.log(absl::StrCat(bad.count, " malformed lines skipped: ", bad.Describe()));
  SLUICE_RETURN_IF_ERROR(CheckBadLines(context_, bad));
  order_ = std::make_unique<Permutation>(examples_.n, CombineHash(EpochSeed(context_, epoch_), task.id()));
  next_ = std::min<uint64_t>(task.first_offset(), examples_.n);
  leased_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> TaskBatches::Next(PreparedBatch* prepared) {
  const uint64_t batch_size = context_.config().train().batch_size();
  for (;;) {
    const uint64_t left = leased_ ? examples_.n - next_ : 0;
    const bool drop = left < batch_size && context_.config().data().drop_last();
    if (left > 0 && !drop) break;
    if (leased_) {
      // Nothing of it is in flight only when it had no batch at all; else its last batch ends it.
      if (next_ == std::min<uint64_t>(task_.first_offset(), examples_.n)) TaskTrained(task_.id(), next_);
      dropped_ += left;
      leased_ = false;
    }
    SLUICE_ASSIGN_OR_RETURN(const bool more, LeaseTask());
    if (!more) return false;
  }
  StageTimer timer(context_.stats, Stage::kRead);
  Batch* batch = &prepared->batch;
  batch->Reset(examples_.num_numeric, examples_.num_slots);
  const uint64_t end = std::min<uint64_t>(next_ + batch_size, examples_.n);
  for (uint64_t i = next_; i < end; ++i) {
    const uint64_t example = Shuffled(context_) ? (*order_)(i) : i;
    batch->Append(examples_, example, CombineHash(task_.id(), example));
  }
  batch->first_position = 0;
  batch->chunk = 0;
  batch->task_id = task_.id();
  batch->task_end = end;
  next_ = end;
  const uint64_t left = examples_.n - next_;
  prepared->last_of_task = left == 0 || (left < batch_size && context_.config().data().drop_last());
  prepared->task_examples = end;
  return true;
}

absl::StatusOr<bool> TaskBatches::ReportTrained() {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (trained_.empty()) return false;
    }
    SLUICE_ASSIGN_OR_RETURN(const bool leased, LeaseTask());
    if (leased) return true;
  }
}

}  // namespace sluice
