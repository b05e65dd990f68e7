#include "server/checkpoints/job_cuts.h"

#include <algorithm>
#include <utility>

#include "common/saved_model/checkpoint.h"
#include "common/saved_model/export_chain.h"

namespace sluice {

void JobCuts::Begin(uint64_t number, uint64_t step, const JobView& view,
                    const absl::Status& possible) {
  std::shared_ptr<JobCut> earlier;
  JobCut::Options options;
  {
    MutexLock lock(&mutex_);
    if (number <= std::max(begun_, over_)) return;
    // From here on, other calls with this number return.
    begun_ = number;
    earlier = std::move(cut_);
    cut_ = nullptr;
    if (number == deletion_at_) options.deletion = deletion_;
  }
  // The lock is free while the cuts begin: JobCut::Begin locks every shard in turn, and a report
  // must not wait for that.
  GiveUp(std::move(earlier));
  options.checkpoint = number;
  options.step = step;
  options.directory = CheckpointFolder(options_.root, step);
  options.save_id = CheckpointSaveId(options_.instance, number);
  const bool is_export = !options_.export_root.empty() && IsExportCut(number);
  if (is_export) options.directory = ExportFolder(options_.export_root, options_.instance, number);
  options.budget = options_.writer->NewBudget(options_.available_memory());
  options.env = options_.env;
  options.clock = options_.clock;
  options.on_change = options_.on_change;
  options.fail_job = options_.fail_job;
  std::shared_ptr<JobCut> cut;
  {
    MutexLock turn(&export_turn_);
    if (is_export) options.export_since = export_since_;
    cut = std::make_shared<JobCut>(std::move(options));
    if (!possible.ok()) {
      cut->Refuse(possible);
    } else if (options_.root.empty()) {
      cut->Refuse(absl::FailedPreconditionError(
          "the job has no folder for checkpoints; set checkpoint.dir or output_dir"));
    } else {
      cut->Begin(view);
    }
  }
  bool over;
  {
    MutexLock lock(&mutex_);
    // While the lock was free, the scheduler may have ended this checkpoint (SetOrder), or a later
    // one may have begun.
    over = number <= over_ || number < begun_;
    if (!over) cut_ = cut;
  }
  if (over) {
    GiveUp(std::move(cut));
    return;
  }
  options_.writer->Add(cut);
  if (options_.on_change) options_.on_change();
}

void JobCuts::SetOrder(const CutOrder& order, const JobView& view, const absl::Status& possible) {
  std::shared_ptr<JobCut> over;
  {
    MutexLock lock(&mutex_);
    over_ = std::max(over_, order.over());
    if (cut_ != nullptr && cut_->checkpoint() <= over_) over.swap(cut_);
  }
  GiveUp(std::move(over));
  SetDeletion(order, view);
  SetExportSince({order.export_since().begin(), order.export_since().end()}, view);
  if (order.now() > 0) Begin(order.now(), order.step(), view, possible);
}

void JobCuts::SetDeletion(const CutOrder& order, const JobView& view) {
  const DeletionOrder& wanted = order.deletion();
  {
    MutexLock lock(&mutex_);
    const bool held = deletion_ != nullptr && deletion_->id == wanted.id();
    if (!held) deletion_ = nullptr;
    deletion_at_ = wanted.at();
    // An order without keys is for a process that has them; this one then does not say that it has.
    if (held || !order.has_deletion() || wanted.keys().empty()) return;
  }
  // The scheduler names the table, so it is not taken for granted.
  if (wanted.table() >= view.shards.size()) return;
  const auto& shards = view.shards[wanted.table()];
  auto keys = std::make_shared<DeletedKeys>();
  keys->id = wanted.id();
  keys->table = wanted.table();
  keys->by_shard.resize(shards.size());
  for (const std::shared_ptr<Shard>& shard : shards) {
    if (shard == nullptr) continue;
    for (const uint64_t key : wanted.keys()) {
      const uint32_t owner = shard->table().ShardOf(key);
      if (shards[owner] != nullptr) keys->by_shard[owner].push_back(key);
    }
    break;
  }
  MutexLock lock(&mutex_);
  deletion_ = std::move(keys);
}

void JobCuts::SetExportSince(std::vector<uint64_t> since, const JobView& view) {
  MutexLock turn(&export_turn_);
  if (since == export_since_) return;
  export_since_ = std::move(since);
  for (size_t t = 0; t < view.shards.size(); ++t) {
    for (const std::shared_ptr<Shard>& shard : view.shards[t]) {
      if (shard != nullptr) shard->DropTombstones(t < export_since_.size() ? export_since_[t] : 0);
    }
  }
}

void JobCuts::GiveUp(std::shared_ptr<JobCut> cut) {
  if (cut == nullptr) return;
  cut->Cancel();
  MutexLock lock(&mutex_);
  // A cancelled cut may still be writing a file, for which AwaitEnd waits, too.
  leaving_.erase(std::remove_if(leaving_.begin(), leaving_.end(),
                                [](const auto& one) { return one->ended(); }),
                 leaving_.end());
  if (!cut->ended()) leaving_.push_back(std::move(cut));
}

void JobCuts::Cancel() {
  const std::shared_ptr<JobCut> cut = this->cut();
  if (cut != nullptr) cut->Cancel();
}

void JobCuts::AwaitEnd() {
  std::vector<std::shared_ptr<JobCut>> cuts;
  {
    MutexLock lock(&mutex_);
    cuts = leaving_;
    if (cut_ != nullptr) cuts.push_back(cut_);
  }
  for (const auto& cut : cuts) cut->AwaitEnd();
}

void JobCuts::FillReport(HostedJob* report) {
  const std::shared_ptr<JobCut> cut = this->cut();
  if (cut != nullptr) *report->mutable_cut() = cut->Report();
  MutexLock lock(&mutex_);
  if (deletion_ == nullptr) return;
  report->mutable_deletion()->set_id(deletion_->id);
  report->mutable_deletion()->set_at(deletion_at_);
}

uint64_t JobCuts::newest() {
  MutexLock lock(&mutex_);
  return std::max(over_, begun_);
}

std::shared_ptr<JobCut> JobCuts::cut() {
  MutexLock lock(&mutex_);
  return cut_;
}

}  // namespace sluice
