#include "worker/data/batch_source.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "model/data/read_examples.h"

namespace sluice {
namespace {

bool Shuffled(const JobContext& context) { return context.config().data().shuffle(); }

absl::StatusOr<std::vector<DataPiece>> PiecesOf(const JobContext& context, const DataTask& task) {
  const DataPieces& parts = task.parts();
  const int n = parts.file_size();
  if (n == 0) return std::vector<DataPiece>{{task.path(), task.begin(), task.end()}};
  const std::vector<std::string>& files = context.files->train();
  const bool complete = parts.begin_size() == n && parts.end_size() == n;
  std::vector<DataPiece> pieces;
  pieces.reserve(n);
  for (int i = 0; i < n; ++i) {
    if (!complete || parts.file(i) >= files.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the scheduler sent task ", task.id(), " with a part of training file ",
                       parts.file(i), ", but this worker sees ", files.size(),
                       " files; data.train_files must match the same files on every host"));
    }
    pieces.push_back({files[parts.file(i)], parts.begin(i), parts.end(i)});
  }
  return pieces;
}

}  // namespace

uint64_t EpochSeed(const JobContext& context, uint32_t epoch) {
  // The constant spells "order". It keeps this use of the seed apart from the others.
  return CombineHash(CombineHash(context.config().train().seed(), 0x6F72646572), epoch);
}

absl::Status CheckBadLines(const JobContext& context, const BadLines& bad, bool most) {
  const uint64_t limit = context.config().data().max_bad_lines();
  return bad.count <= limit ? absl::OkStatus() : TooManyBadLines("the data", limit, bad, most);
}

TaskBatches::TaskBatches(const JobContext& context, uint32_t epoch, Pace* pace)
    : context_(context), epoch_(epoch), leases_(context, epoch, pace) {}

absl::StatusOr<bool> TaskBatches::LeaseTask() {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<DataTask> task, leases_.Next());
  if (!task.has_value()) return false;
  SLUICE_RETURN_IF_ERROR(LoadTask(*task));
  return true;
}

absl::Status TaskBatches::LoadTask(const DataTask& task) {
  StageTimer timer(context_.stats, Stage::kRead);
  const FeatureSchema& schema = *context_.model->schema();
  std::shared_ptr<Loaded> loaded = pool_.Take();
  loaded->task = task;
  WorkerStats::TaskData data;
  BadLines& bad = data.bad;
  const bool summarize = context_.stats->summarizes();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<DataPiece> pieces, PiecesOf(context_, task));
  std::vector<DataPiece> next;
  if (const DataTask* const upcoming = leases_.upcoming()) {
    SLUICE_ASSIGN_OR_RETURN(next, PiecesOf(context_, *upcoming));
  }
  SLUICE_ASSIGN_OR_RETURN(
      loaded->examples,
      ReadExamples(*context_.data, schema, context_.cache.get(), absl::MakeConstSpan(pieces),
                   &loaded->parsed, &bad, summarize ? &data.summary : nullptr, next));
  const uint64_t n = loaded->examples.view.n;
  // Batches begin at multiples of the batch size, in a resumed task too.
  if (context_.config().data().drop_last())
    data.dropped = n % context_.config().train().batch_size();
  context_.stats->AddTask(task.id(), data);
  if (bad.count > 0)
    context_.log(absl::StrCat(bad.count, " malformed lines skipped: ", bad.Describe()));
  SLUICE_RETURN_IF_ERROR(CheckBadLines(context_, bad, bad.count > n));
  loaded->order =
      std::make_unique<Permutation>(n, CombineHash(EpochSeed(context_, epoch_), task.id()));
  // The end that is left out is counted again, also when all else is trained.
  first_ = next_ = std::min<uint64_t>(task.first_offset(), n - data.dropped);
  loaded_ = std::move(loaded);
  return absl::OkStatus();
}

absl::StatusOr<BatchSource::Fill> TaskBatches::Next() {
  const uint64_t batch_size = context_.config().train().batch_size();
  for (;;) {
    const uint64_t n = loaded_ == nullptr ? 0 : loaded_->examples.view.n;
    const uint64_t left = loaded_ == nullptr ? 0 : n - next_;
    const bool drop = left < batch_size && context_.config().data().drop_last();
    if (left > 0 && !drop) break;
    if (loaded_ != nullptr) {
      // A task without any batch has no push that could report it trained, so report it here. Other
      // tasks are reported when the push of their last batch is acknowledged.
      const DataTask& task = loaded_->task;
      if (next_ == first_) TaskTrained(task.id(), next_);
      // With drop_last, the examples that are too few for a batch.
      dropped_ += left;
      loaded_ = nullptr;
    }
    SLUICE_ASSIGN_OR_RETURN(const bool more, LeaseTask());
    if (!more) return Fill();
  }
  const uint64_t begin = next_;
  next_ = std::min<uint64_t>(begin + batch_size, loaded_->examples.view.n);
  return Fill([this, loaded = loaded_, begin, end = next_](PreparedBatch* prepared) {
    return FillPart(*loaded, begin, end, prepared);
  });
}

absl::Status TaskBatches::FillPart(const Loaded& loaded, uint64_t begin, uint64_t end,
                                   PreparedBatch* prepared) const {
  StageTimer timer(context_.stats, Stage::kRead);
  const ExampleView& examples = loaded.examples.view;
  Batch* batch = &prepared->batch;
  batch->Reset(examples.num_numeric, examples.num_slots);
  for (uint64_t i = begin; i < end; ++i) {
    const uint64_t example = Shuffled(context_) ? (*loaded.order)(i) : i;
    SLUICE_RETURN_IF_ERROR(
        // The identity is that of the example in its task, so dropout does not depend on the order.
        batch->Append(examples, example, CombineHash(loaded.task.id(), example)));
  }
  batch->first_position = 0;
  batch->chunk = 0;
  batch->task_id = loaded.task.id();
  batch->task_end = end;
  const uint64_t left = examples.n - end;
  prepared->last_of_task = left == 0 || (left < context_.config().train().batch_size() &&
                                         context_.config().data().drop_last());
  prepared->task_examples = end;
  return absl::OkStatus();
}

void TaskBatches::DropLeased() {
  leases_.Drop();
  loaded_ = nullptr;
}

absl::StatusOr<bool> TaskBatches::ReportTrained() {
  while (leases_.has_reports()) {
    SLUICE_ASSIGN_OR_RETURN(const bool leased, LeaseTask());
    if (leased) return true;
  }
  return false;
}

}  // namespace sluice
