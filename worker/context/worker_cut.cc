#include "worker/context/worker_cut.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

WorkerCuts::WorkerCuts(std::string job_id, uint32_t rank, uint64_t incarnation,
                       std::function<void()> report_soon)
    : job_id_(std::move(job_id)),
      rank_(rank),
      incarnation_(incarnation),
      report_soon_(std::move(report_soon)) {}

void WorkerCuts::SetWanted(const WorkerCheckpoint& wanted) {
  std::optional<OrderedPart> part;
  {
    MutexLock lock(&mutex_);
    wanted_ = wanted;
    // The scheduler repeats its wish until it has seen the part. A part that is recorded answers it
    // already.
    asked_ = wanted.number() > (cut_ ? cut_->checkpoint() : 0) ? wanted.number() : 0;
    changed_.NotifyAll();
    part = PartByOrder();
  }
  // Outside the lock: it may write files, and it calls back.
  if (part) Deliver(*std::move(part));
}

void WorkerCuts::KeepState(uint64_t step, WorkerState state, SaveTables save) {
  std::optional<OrderedPart> part;
  {
    MutexLock lock(&mutex_);
    kept_step_ = step;
    kept_ = std::move(state);
    save_ = std::move(save);
    part = PartByOrder();
  }
  if (part) Deliver(*std::move(part));
}

void WorkerCuts::Deliver(OrderedPart ordered) {
  if (ordered.save == nullptr) return Record(std::move(ordered.part));
  // The files come first: the scheduler takes a recorded part for complete.
  const uint64_t number = ordered.part.checkpoint();
  ordered.save(number, [this, part = std::move(ordered.part)](
                           const absl::StatusOr<std::vector<SavedFile>>& files) {
    if (!files.ok()) return RecordError(part.checkpoint(), std::string(files.status().message()));
    WorkerCut complete = part;
    complete.mutable_state()->mutable_dense_files()->Assign(files->begin(), files->end());
    Record(std::move(complete));
  });
}

std::optional<WorkerCuts::OrderedPart> WorkerCuts::PartByOrder() {
  const bool kept = kept_step_ != 0 && wanted_.at_step() == kept_step_;
  if (!wanted_.by_order() || !kept) return std::nullopt;
  OrderedPart ordered;
  ordered.part.set_checkpoint(wanted_.number());
  ordered.part.set_step(kept_step_);
  *ordered.part.mutable_state() = kept_;
  if (!wanted_.writes_tables() || save_ == nullptr) return ordered;
  // The wish comes with every poll, but the files of a checkpoint are written once.
  if (std::exchange(saving_, wanted_.number()) == wanted_.number()) return std::nullopt;
  ordered.save = save_;
  return ordered;
}

WorkerCheckpoint WorkerCuts::wanted() const {
  MutexLock lock(&mutex_);
  return wanted_;
}

uint64_t WorkerCuts::ForCommit(uint64_t step) {
  MutexLock lock(&mutex_);
  // Each number is handed out once, so that only one commit names it. By order no step is committed
  // for it: the parts are those of the step that all ranks have kept.
  if (wanted_.number() <= named_.number || wanted_.by_order()) return 0;
  // The scheduler has not heard of what was named last, and may mean this in its place.
  if (wanted_.after() > 0 && named_.number >= wanted_.after()) return 0;
  if (wanted_.every_steps() > 0 && step % wanted_.every_steps() != 0) return 0;
  named_ = {wanted_.number(), step};
  return named_.number;
}

WorkerCuts::Named WorkerCuts::named() const {
  MutexLock lock(&mutex_);
  return named_;
}

bool WorkerCuts::IsNew(uint64_t number) const {
  MutexLock lock(&mutex_);
  return number > (cut_ ? cut_->checkpoint() : 0);
}

void WorkerCuts::Record(uint64_t number, uint64_t step, WorkerState state) {
  WorkerCut cut;
  cut.set_checkpoint(number);
  cut.set_step(step);
  *cut.mutable_state() = std::move(state);
  Record(std::move(cut));
}

void WorkerCuts::RecordParked(uint64_t number, uint64_t step, WorkerState state) {
  WorkerCut cut;
  cut.set_checkpoint(number);
  cut.set_step(step);
  *cut.mutable_state() = std::move(state);
  cut.set_parked(true);
  Record(std::move(cut));
}

void WorkerCuts::RecordError(uint64_t number, const std::string& error) {
  WorkerCut cut;
  cut.set_checkpoint(number);
  cut.set_error(error);
  Record(std::move(cut));
}

void WorkerCuts::Record(WorkerCut cut) {
  cut.set_job_id(job_id_);
  cut.set_rank(rank_);
  cut.set_incarnation(incarnation_);
  {
    MutexLock lock(&mutex_);
    // Files that took long may complete an older part after a newer one.
    if (cut.checkpoint() <= (cut_ ? cut_->checkpoint() : 0)) return;
    // A newer wish that came while this part was made stays asked.
    if (wanted_.number() <= cut.checkpoint()) asked_ = 0;
    cut_ = std::move(cut);
  }
  if (report_soon_) report_soon_();
}

void WorkerCuts::AwaitRelease(const std::atomic<bool>* cancelled,
                              const std::function<bool()>& silent) {
  // Neither a cancellation nor silence wakes the wait.
  constexpr std::chrono::milliseconds kLook(100);
  std::string error;
  while (error.empty()) {
    // Before the lock is taken, since it calls out.
    const bool gives_up = silent && silent();
    MutexLock lock(&mutex_);
    if (!cut_ || !cut_->parked()) return;
    if (wanted_.number() != cut_->checkpoint() || wanted_.released() || *cancelled) break;
    if (gives_up) {
      error =
          "the scheduler was silent while the rank waited for the pservers, so it continues "
          "training";
    } else {
      changed_.WaitFor(&mutex_, kLook);
    }
  }
  EndParking(error);
}

void WorkerCuts::GoOn() { EndParking(""); }

void WorkerCuts::EndParking(const std::string& error) {
  {
    MutexLock lock(&mutex_);
    if (!cut_ || !cut_->parked()) return;
    cut_->set_parked(false);
    cut_->set_error(error);
  }
  if (report_soon_) report_soon_();
}

uint64_t WorkerCuts::newest() const {
  MutexLock lock(&mutex_);
  // A scheduler that takes over must not give a number again that any of these has used.
  return std::max({wanted_.number(), named_.number, cut_ ? cut_->checkpoint() : 0});
}

void WorkerCuts::AddTo(PollRequest* report) const {
  MutexLock lock(&mutex_);
  if (cut_) *report->mutable_cut() = *cut_;
}

}  // namespace sluice
