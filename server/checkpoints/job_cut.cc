#include "server/checkpoints/job_cut.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "common/wire/train_position.h"

namespace sluice {
namespace {

// Keeps, for each rank, the position that is behind the other.
void TakeLeast(const ShardFacts& facts, std::vector<RankPosition>* least) {
  if (least->empty()) {
    least->assign(facts.ranks().begin(), facts.ranks().end());
    return;
  }
  for (int r = 0; r < facts.ranks_size(); ++r) KeepLeast(facts.ranks(r), &(*least)[r]);
}

}  // namespace

// Counts the bytes of a cut, which another thread may end.
class JobCut::Watched : public ShardCut {
 public:
  Watched(std::unique_ptr<ShardCut> cut, JobCut* owner) : owner_(owner), cut_(std::move(cut)) {}
  absl::StatusOr<bool> Next(std::string* chunk) override {
    MutexLock lock(&mutex_);
    if (cut_ == nullptr) return absl::CancelledError("it was given up");
    SLUICE_ASSIGN_OR_RETURN(const bool more, cut_->Next(chunk));
    if (more) owner_->written_bytes_.fetch_add(chunk->size(), std::memory_order_relaxed);
    if (!begun_ && owner_->options_.export_since.has_value()) CountRows(*chunk);
    begun_ = true;
    return more;
  }
  // Frees, too, the rows that updates copied for the cut.
  void End() {
    MutexLock lock(&mutex_);
    cut_ = nullptr;
  }

 private:
  // Adds what the header of the file says, which is the first piece.
  void CountRows(const std::string& piece) {
    const size_t front = kShardFileMagic.size() + sizeof(uint32_t);
    ShardFileHeader header;
    if (piece.size() < front ||
        !header.ParseFromArray(piece.data() + front, static_cast<int>(piece.size() - front))) {
      return;
    }
    // Relaxed: read once the cut has ended, under the lock.
    owner_->rows_.fetch_add(header.rows(), std::memory_order_relaxed);
    owner_->gone_.fetch_add(static_cast<uint64_t>(header.gone_size()), std::memory_order_relaxed);
  }

  JobCut* const owner_;
  Mutex mutex_;  // before the shard's
  std::unique_ptr<ShardCut> cut_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
};

JobCut::Begun JobCut::BeginAll(const JobView& view, const std::vector<uint64_t>& since) const {
  const DeletedKeys* const deletion = options_.deletion.get();
  CutOptions options;
  options.state = !options_.export_since.has_value();
  options.budget = options_.budget;
  Begun begun;
  begun.schedule_steps.assign(view.shards.size(), UINT64_MAX);
  for (size_t t = 0; t < view.shards.size(); ++t) {
    options.since = since.empty() ? 0 : since[t];
    for (const std::shared_ptr<Shard>& shard : view.shards[t]) {
      if (shard == nullptr) continue;
      if (deletion != nullptr && shard->table().id() == deletion->table) {
        const std::vector<uint64_t>& keys = deletion->by_shard[shard->index()];
        begun.deleted += shard->DeleteRows(keys.data(), keys.size());
      }
      ShardFacts facts;
      begun.parts.push_back({shard, shard->BeginCut(options, &facts)});
      TakeLeast(facts, &begun.least);
      if (!shard->table().sparse()) continue;  // written whole
      uint64_t& step = begun.schedule_steps[t];
      step = std::min<uint64_t>(step, facts.schedule_steps());
    }
  }
  return begun;
}

void JobCut::Begin(const JobView& view) {
  Begun begun;
  std::vector<uint64_t> since = options_.export_since.value_or(std::vector<uint64_t>());
  // The scheduler names the tables, so it is not taken for granted.
  if (since.size() != view.shards.size()) since.clear();
  absl::Status status, names_gone;
  try {
    // All cuts begin before any file is written, so that the shards are saved as of nearly one
    // moment; in sync, as of exactly one step.
    begun = BeginAll(view, since);
    // Asked only now: rows may go until the cut of their shard begins.
    for (const Part& part : begun.parts)
      if (!since.empty())
        names_gone.Update(part.shard->NamesGoneSince(since[part.shard->table().id()]));
    if (!names_gone.ok()) {
      begun = Begun();  // a shard has one cut at a time
      since.clear();
      begun = BeginAll(view, since);
    }
  } catch (const std::bad_alloc&) {
    begun = Begun();
    status = absl::ResourceExhaustedError("no memory to begin the cut; use more pservers");
  }
  MutexLock lock(&mutex_);
  begun_ = options_.clock->Now();
  parts_ = std::move(begun.parts);
  least_ = std::move(begun.least);
  schedule_steps_ = std::move(begun.schedule_steps);
  deleted_ = begun.deleted;
  since_ = std::move(since);
  why_base_ = std::string(names_gone.message());
  status_ = std::move(status);
  if (parts_.empty()) EndLocked();
}

void JobCut::Refuse(absl::Status why) {
  MutexLock lock(&mutex_);
  begun_ = options_.clock->Now();
  status_ = std::move(why);
  EndLocked();
}

bool JobCut::WriteOne() {
  std::shared_ptr<Shard> shard;
  std::shared_ptr<Watched> cut;
  {
    MutexLock lock(&mutex_);
    if (ended_ || !status_.ok() || next_ == parts_.size()) return false;
    Part& part = parts_[next_++];
    shard = std::move(part.shard);
    cut = std::make_shared<Watched>(std::move(part.cut), this);
    running_.push_back(cut);
    // Noted before the file exists: if the checkpoint fails, a file that was only begun goes too.
    names_.push_back(ShardFileName(shard->table().name(), shard->index(), options_.save_id));
  }
  absl::StatusOr<SavedFile> file = Write(*shard, cut.get());
  cut->End();  // now, and not with the last file
  shard.reset();
  EndOne(cut.get(), std::move(file));
  return true;
}

absl::StatusOr<SavedFile> JobCut::Write(const Shard& shard, Watched* cut) {
  try {
    return WriteShardFile(options_.directory, shard.table(), shard.index(), cut, options_.env,
                          options_.save_id);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory to save shard ", shard.index(),
                                                     " of table '", shard.table().name(),
                                                     "'; use more pservers"));
  }
}

void JobCut::EndAll(const std::vector<std::shared_ptr<Watched>>& cuts) {
  for (const auto& cut : cuts) cut->End();
}

void JobCut::EndOne(const Watched* cut, absl::StatusOr<SavedFile> file) {
  // Before the checkpoint ends, so that a report with its error has the job's error, too.
  if (absl::IsOutOfRange(file.status()) && options_.fail_job)
    options_.fail_job(std::string(file.status().message()));
  std::vector<Part> dropped;  // destroyed after the lock is released
  std::vector<std::shared_ptr<Watched>> others;
  bool last;
  {
    MutexLock lock(&mutex_);
    running_.erase(std::find_if(running_.begin(), running_.end(),
                                [cut](const auto& one) { return one.get() == cut; }));
    if (file.ok()) {
      files_.push_back(*std::move(file));
    } else if (status_.ok()) {
      status_ = file.status();
    }
    if (!status_.ok()) {
      others = running_;
      dropped.swap(parts_);
      next_ = 0;
    }
    last = running_.empty() && next_ == parts_.size();
  }
  dropped.clear();
  EndAll(others);
  // The thread that writes the last file finishes the checkpoint part.
  if (last) Finish();
}

void JobCut::Cancel() {
  std::vector<Part> dropped;
  std::vector<std::shared_ptr<Watched>> running;
  {
    MutexLock lock(&mutex_);
    if (ended_) return;
    if (status_.ok()) status_ = absl::CancelledError("it was given up");
    running = running_;
    dropped.swap(parts_);
    next_ = 0;
  }
  dropped.clear();
  EndAll(running);
  if (running.empty()) Finish();  // else whoever writes the last file does
}

void JobCut::Finish() {
  std::vector<std::string> names;
  {
    MutexLock lock(&mutex_);
    if (ended_) return;
    if (!status_.ok()) names = names_;
  }
  // Without the lock, so that a report need not wait for a slow disk. The cut ends only afterwards,
  // because a later checkpoint of the same step uses the same folder.
  for (const std::string& name : names) {
    options_.env->RemoveFile(absl::StrCat(options_.directory, "/", name)).IgnoreError();
  }
  // Unless it holds files of other pservers or of an earlier checkpoint.
  if (!names.empty()) options_.env->RemoveDir(options_.directory).IgnoreError();
  {
    MutexLock lock(&mutex_);
    EndLocked();
  }
  if (options_.on_change) options_.on_change();
}

void JobCut::EndLocked() {
  ended_ = true;
  end_ = options_.clock->Now();
  ended_changed_.NotifyAll();
}

bool JobCut::ended() {
  MutexLock lock(&mutex_);
  return ended_;
}

void JobCut::AwaitEnd() {
  MutexLock lock(&mutex_);
  while (!ended_) ended_changed_.Wait(&mutex_);
}

HostedCut JobCut::Report() {
  HostedCut report;
  report.set_checkpoint(options_.checkpoint);
  report.set_step(options_.step);
  report.set_written_bytes(written_bytes_.load(std::memory_order_relaxed));
  report.set_preimage_bytes(options_.budget->most());
  MutexLock lock(&mutex_);
  for (const RankPosition& at : least_) *report.add_least() = at;
  if (options_.export_since.has_value()) {
    report.mutable_since()->Assign(since_.begin(), since_.end());
    if (!why_base_.empty()) report.set_error(Printable(why_base_));
    report.mutable_schedule_step()->Assign(schedule_steps_.begin(), schedule_steps_.end());
  }
  if (options_.deletion != nullptr) {
    report.set_deletion(options_.deletion->id);
    report.set_deleted(deleted_);
  }
  if (!status_.ok()) {
    report.set_state(HostedCut::FAILED);
    report.set_error(Printable(status_.message()));
  } else if (ended_) {
    report.set_state(HostedCut::WRITTEN);
    for (const SavedFile& file : files_) *report.add_files() = file;
    if (options_.export_since.has_value()) {
      report.set_rows(rows_.load(std::memory_order_relaxed));
      report.set_gone(gone_.load(std::memory_order_relaxed));
    }
  } else {
    report.set_state(HostedCut::WRITING);
  }
  const absl::Time until = ended_ ? end_ : options_.clock->Now();
  report.set_seconds(absl::ToDoubleSeconds(until - begun_));
  return report;
}

}  // namespace sluice
