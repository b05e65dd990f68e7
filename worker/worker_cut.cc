#include "worker/worker_cut.h"

#include <utility>

namespace sluice {

WorkerCuts::WorkerCuts(std::string job_id, uint32_t rank, uint64_t incarnation,
                       std::function<void()> report_soon)
    : job_id_(std::move(job_id)),
      rank_(rank),
      incarnation_(incarnation),
      report_soon_(std::move(report_soon)) {}

void WorkerCuts::SetWanted(const WorkerCheckpoint& wanted) {
  MutexLock lock(&mutex_);
  wanted_ = wanted;
}

uint64_t WorkerCuts::ForCommit(uint64_t step) {
  MutexLock lock(&mutex_);
  if (wanted_.number() <= given_ || step < wanted_.at_step()) return 0;
  given_ = wanted_.number();
  return given_;
}

bool WorkerCuts::IsNew(uint64_t number) const {
  MutexLock lock(&mutex_);
  return number > (cut_ ? cut_->checkpoint() : 0);
}

void WorkerCuts::Record(uint64_t number, uint64_t step, WorkerState state) {
  {
    MutexLock lock(&mutex_);
    if (number <= (cut_ ? cut_->checkpoint() : 0)) return;
    WorkerCut& cut = cut_.emplace();
    cut.set_job_id(job_id_);
    cut.set_rank(rank_);
    cut.set_incarnation(incarnation_);
    cut.set_checkpoint(number);
    cut.set_step(step);
    *cut.mutable_state() = std::move(state);
  }
  if (report_soon_) report_soon_();
}

void WorkerCuts::AddTo(PollRequest* report) const {
  MutexLock lock(&mutex_);
  if (cut_) *report->mutable_cut() = *cut_;
}

}  // namespace sluice
