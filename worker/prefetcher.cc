#include "worker/prefetcher.h"

namespace sluice {

Prefetcher::Prefetcher(const JobContext& context, BatchSource* source)
    : context_(context),
      source_(source),
      queue_(context.config().train().prefetch_batches()),
      thread_([this] { Run(); }) {
  context_.stats->WatchQueue(&queue_);
}

Prefetcher::~Prefetcher() {
  context_.stats->WatchQueue(nullptr);
  queue_.Cancel();
  thread_.join();
}

absl::StatusOr<bool> Prefetcher::Prepare(PreparedBatch* prepared) {
  absl::StatusOr<bool> more = source_->Next(prepared);
  if (!more.ok() || !*more) return more;
  if (context_.sparse() != nullptr) {
    StageTimer timer(context_.stats, Stage::kDedup);
    prepared->row_index.resize(prepared->batch.keys.size());
    deduplicator_.Run(*context_.sparse(), prepared->batch.keys.data(), prepared->batch.keys.size(),
                      &prepared->keys, prepared->row_index.data());
  }
  return true;
}

void Prefetcher::Run() {
  for (;;) {
    std::shared_ptr<PreparedBatch> prepared = pool_.Take();
    absl::StatusOr<bool> more = Prepare(prepared.get());
    if (!more.ok() || !*more) {
      queue_.Close(more.status());
      return;
    }
    if (!queue_.Push(std::move(prepared))) return;
  }
}

}  // namespace sluice
