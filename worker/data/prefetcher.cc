#include "worker/data/prefetcher.h"

#include <memory>
#include <utility>

#include "common/base/status_macros.h"

namespace sluice {

Prefetcher::Prefetcher(const JobContext& context, BatchSource* source)
    : context_(context),
      queue_(context.config().train().prefetch_batches()),
      source_(source),
      waits_(source) {
  context_.stats->WatchQueue(&queue_);
  for (uint32_t i = 0; i < context.config().train().reader_threads(); ++i)
    threads_.emplace_back([this, i] { Run(i); });
}

Prefetcher::~Prefetcher() {
  // The statistics must not read the queue while it is destroyed. Cancel wakes a reader that waits
  // for room, Stop those that wait for their turn. A source that has ended may be used again.
  context_.stats->WatchQueue(nullptr);
  if (!ended_) waits_->Cancel();
  queue_.Cancel();
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

void Prefetcher::Stop() {
  MutexLock lock(&turn_mutex_);
  stopped_ = true;
  turned_.NotifyAll();
}

bool Prefetcher::AwaitTurn(uint64_t place) {
  MutexLock lock(&turn_mutex_);
  while (turn_ != place && !stopped_) turned_.Wait(&turn_mutex_);
  return !stopped_;
}

BatchSource::Fill Prefetcher::Next(uint64_t* place) {
  absl::Status end;
  {
    MutexLock lock(&source_mutex_);
    if (ended_) return nullptr;
    *place = next_++;
    absl::StatusOr<BatchSource::Fill> fill = source_->Next();
    if (fill.ok() && *fill) return *std::move(fill);
    ended_ = true;
    end = fill.status();
  }
  Close(*place, std::move(end));
  return nullptr;
}

void Prefetcher::Close(uint64_t place, absl::Status end) {
  // Batches taken before this place may still be on their way. Those taken after it are dropped:
  // their readers would wait for their turns for ever.
  if (!AwaitTurn(place)) return;
  queue_.Close(std::move(end));
  Stop();
}

absl::Status Prefetcher::Prepare(const BatchSource::Fill& fill, BatchKeys* keys,
                                 PreparedBatch* prepared) const {
  SLUICE_RETURN_IF_ERROR(fill(prepared));
  if (context_.sparse_tables() == 0) return absl::OkStatus();
  StageTimer timer(context_.stats, Stage::kDedup);
  keys->Find(context_, prepared);
  return absl::OkStatus();
}

bool Prefetcher::Push(uint64_t place, BatchQueue::Item item) {
  if (!AwaitTurn(place)) return false;
  if (!queue_.Push(std::move(item))) {
    Stop();
    return false;
  }
  MutexLock lock(&turn_mutex_);
  ++turn_;
  turned_.NotifyAll();
  return true;
}

void Prefetcher::Run(uint32_t reader) {
  WorkerStats::NameReader(reader);
  // One a thread: it keeps its hash table from batch to batch.
  BatchKeys keys;
  for (;;) {
    uint64_t place = 0;
    const BatchSource::Fill fill = Next(&place);
    if (!fill) return;
    std::shared_ptr<PreparedBatch> prepared = pool_.Take();
    absl::Status status = Prepare(fill, &keys, prepared.get());
    if (!status.ok()) return Close(place, std::move(status));
    if (!Push(place, std::move(prepared))) return;
  }
}

}  // namespace sluice
