#include "worker/batch_source.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "model/data/text_reader.h"

namespace sluice {
namespace {

constexpr uint64_t kAllText = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kPieceBytes = 16 << 20;  // of text

uint64_t EpochSeed(const JobContext& context, uint32_t epoch) {
  return CombineHash(CombineHash(context.config().train().seed(), 0x6F72646572), epoch);
}

bool Shuffled(const JobContext& context) { return context.config().data().shuffle(); }

// Gradient sums are cut at multiples of this many positions of the global batch, so that up to 16
// workers add the same partial sums; at least 16, below which cuts cost more than they are worth.
size_t ChunkOf(uint64_t global_batch) { return std::max<uint64_t>(16, global_batch / 16); }

absl::Status CheckBadLines(const JobContext& context, const BadLines& bad) {
  if (bad.count <= context.config().data().max_bad_lines()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the data has more malformed lines than data.max_bad_lines = ",
                   context.config().data().max_bad_lines(),
                   "; mend the data or raise the limit: ", bad.Describe()));
}

}  // namespace

std::vector<std::string> FilesOfRank(const JobContext& context) {
  const std::vector<std::string>& files = context.files->train();
  if (context.mode == Mode::kSync && context.config().data().assignment() == DataConfig::GLOBAL)
    return files;
  std::vector<std::string> mine;
  for (size_t i = context.rank; i < files.size(); i += context.worker_num())
    mine.push_back(files[i]);
  return mine;
}

namespace {

// Pieces of a size that tasks have too, so that sync and async jobs share their caches. Compressed
// text is read in one go.
absl::StatusOr<std::vector<DataPiece>> PiecesOf(const std::vector<std::string>& files) {
  std::vector<DataPiece> pieces;
  for (const std::string& file : files) {
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<TextReader> text, TextReader::Open(file));
    const uint64_t bytes = text->identity().size;
    const uint64_t size = text->compressed() ? kAllText : kPieceBytes;
    for (uint64_t begin = 0; begin < bytes; begin += std::min(size, bytes)) {
      const bool last = size >= bytes - begin;
      pieces.push_back({file, begin, text->compressed() ? kAllText : last ? bytes : begin + size});
    }
  }
  return pieces;
}

// One piece in memory of its own; mapped when it was stored, as the system can share and drop those
// pages.
absl::StatusOr<Examples> LoadPiece(const JobContext& context, const DataPiece& piece, BadLines* bad,
                                   DataSummary* summary) {
  auto parsed = std::make_shared<Batch>();
  SLUICE_ASSIGN_OR_RETURN(Examples examples,
                          ReadExamples(*context.data, *context.model->schema(), context.cache.get(),
                                       piece, parsed.get(), bad, summary));
  if (examples.owner == nullptr && context.cache != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(const FileIdentity source, IdentifyFile(piece.path));
    BadLines known;
    Examples mapped = context.cache->Find(piece, source, &known, nullptr);
    if (mapped.owner != nullptr) return mapped;
  }
  if (examples.owner == nullptr) examples.owner = std::move(parsed);
  return examples;
}

}  // namespace

absl::Status LoadExamples(const JobContext& context, const std::vector<std::string>& files,
                          ExampleSet* examples, BadLines* bad) {
  StageTimer timer(context.stats, Stage::kRead);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<DataPiece> pieces, PiecesOf(files));
  std::vector<Examples> loaded(pieces.size());
  std::vector<BadLines> bad_lines(pieces.size());
  // Ranks begin at different places: each finds what the others have cached when it comes to it.
  const size_t first = pieces.size() * context.rank / std::max(1u, context.worker_num());
  // Every rank reads all files with GLOBAL: each counts a share of the pieces.
  const bool per_rank = context.config().data().assignment() == DataConfig::PER_RANK_FILES;
  DataSummary summary;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (*context.cancelled) return absl::CancelledError("the job was cancelled");
    const size_t p = (first + i) % pieces.size();
    const bool counts = per_rank || p % std::max(1u, context.worker_num()) == context.rank;
    SLUICE_ASSIGN_OR_RETURN(
        loaded[p], LoadPiece(context, pieces[p], &bad_lines[p], counts ? &summary : nullptr));
  }
  context.stats->AddSummary(summary);
  for (size_t p = 0; p < pieces.size(); ++p) {
    examples->Add(std::move(loaded[p]));
    bad->Merge(bad_lines[p]);
  }
  return CheckBadLines(context, *bad);
}

PermutedBatches::PermutedBatches(const JobContext& context, const ExampleSet* examples,
                                 uint32_t epoch, uint64_t steps)
    : context_(context),
      examples_(examples),
      order_(examples->size(), EpochSeed(context, epoch)),
      steps_(steps),
      per_rank_(context.config().data().assignment() == DataConfig::PER_RANK_FILES),
      global_batch_(static_cast<uint64_t>(context.config().train().batch_size()) *
                    (per_rank_ ? 1 : context.worker_num())) {}

absl::StatusOr<BatchSource::Fill> PermutedBatches::Next() {
  if (step_ == steps_) return Fill();
  return Fill([this, step = step_++](PreparedBatch* prepared) { FillStep(step, prepared); });
}

void PermutedBatches::FillStep(uint64_t step, PreparedBatch* prepared) const {
  Batch* batch = &prepared->batch;
  const FeatureSchema& schema = *context_.model->schema();
  batch->Reset(schema.numerics().size(), schema.slots().size());
  const uint64_t begin = std::min<uint64_t>(step * global_batch_, examples_->size());
  const uint64_t end = std::min<uint64_t>(begin + global_batch_, examples_->size());
  const uint64_t size = end - begin;
  const uint64_t slices = per_rank_ ? 1 : context_.worker_num();
  const uint64_t slice = per_rank_ ? 0 : context_.rank;
  // A full batch splits evenly; the short last one as evenly as it can, empty slices allowed.
  uint64_t first = begin + size * slice / slices, last = begin + size * (slice + 1) / slices;
  if (context_.config().data().drop_last() && size < global_batch_) last = first;
  for (uint64_t i = first; i < last; ++i) {
    const uint64_t example = Shuffled(context_) ? order_(i) : i;
    examples_->AppendTo(batch, example);
  }
  batch->first_position = first - begin;
  batch->chunk = ChunkOf(global_batch_);
  prepared->last_of_task = false;
}

uint64_t PermutedBatches::dropped() const {
  if (!context_.config().data().drop_last()) return 0;
  // With GLOBAL every rank sees all examples: rank 0 speaks for all.
  return per_rank_ || context_.rank == 0 ? examples_->size() % global_batch_ : 0;
}

TaskBatches::TaskBatches(const JobContext& context, uint32_t epoch)
    : context_(context), epoch_(epoch) {}

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
  // A call that is tried again keeps its number: the task of a lost reply is answered again, not
  // lost.
  request.set_number(++calls_);
  absl::Time give_up = absl::InfiniteFuture();
  for (;;) {
    absl::StatusOr<NextTaskReply> reply = context_.scheduler->NextTask(request);
    if (reply.ok() && reply->kind() != NextTaskReply::WAIT) return reply;
    if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
    const absl::Time now = Clock::Real()->Now();
    if (reply.ok()) {
      request.set_number(++calls_);  // WAIT was the answer: a new question
      give_up = absl::InfiniteFuture();
    } else {
      // From the first call without an answer on: this process may have been stopped during it.
      if (give_up == absl::InfiniteFuture()) give_up = now + context_.scheduler_patience;
      if (!absl::IsUnavailable(reply.status()) || now > give_up) return reply.status();
    }
    Clock::Real()->Sleep(absl::Milliseconds(100));
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
  std::shared_ptr<Loaded> loaded = pool_.Take();
  loaded->task = task;
  BadLines bad;
  DataSummary summary;
  const bool summarize = context_.stats->summarizes();
  SLUICE_ASSIGN_OR_RETURN(
      loaded->examples, ReadExamples(*context_.data, schema, context_.cache.get(),
                                     {task.path(), task.begin(), task.end()}, &loaded->parsed, &bad,
                                     summarize ? &summary : nullptr));
  if (summarize) context_.stats->AddSummary(summary);
  context_.stats->AddBadLines(bad);
  if (bad.count > 0)
    context_.log(absl::StrCat(bad.count, " malformed lines skipped: ", bad.Describe()));
  SLUICE_RETURN_IF_ERROR(CheckBadLines(context_, bad));
  const uint64_t n = loaded->examples.view.n;
  loaded->order =
      std::make_unique<Permutation>(n, CombineHash(EpochSeed(context_, epoch_), task.id()));
  next_ = std::min<uint64_t>(task.first_offset(), n);
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
      // Nothing of it is in flight only when it had no batch at all; else its last batch ends it.
      const DataTask& task = loaded_->task;
      if (next_ == std::min<uint64_t>(task.first_offset(), n)) TaskTrained(task.id(), next_);
      dropped_ += left;
      loaded_ = nullptr;
    }
    SLUICE_ASSIGN_OR_RETURN(const bool more, LeaseTask());
    if (!more) return Fill();
  }
  const uint64_t begin = next_;
  next_ = std::min<uint64_t>(begin + batch_size, loaded_->examples.view.n);
  return Fill([this, loaded = loaded_, begin, end = next_](PreparedBatch* prepared) {
    FillPart(*loaded, begin, end, prepared);
  });
}

void TaskBatches::FillPart(const Loaded& loaded, uint64_t begin, uint64_t end,
                           PreparedBatch* prepared) const {
  StageTimer timer(context_.stats, Stage::kRead);
  const ExampleView& examples = loaded.examples.view;
  Batch* batch = &prepared->batch;
  batch->Reset(examples.num_numeric, examples.num_slots);
  for (uint64_t i = begin; i < end; ++i) {
    const uint64_t example = Shuffled(context_) ? (*loaded.order)(i) : i;
    batch->Append(examples, example, CombineHash(loaded.task.id(), example));
  }
  batch->first_position = 0;
  batch->chunk = 0;
  batch->task_id = loaded.task.id();
  batch->task_end = end;
  const uint64_t left = examples.n - end;
  prepared->last_of_task = left == 0 || (left < context_.config().train().batch_size() &&
                                         context_.config().data().drop_last());
  prepared->task_examples = end;
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
