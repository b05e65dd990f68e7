#include "scheduler/step_reports.h"

#include <algorithm>

namespace sluice {

void StepReports::Add(uint32_t rank, const WorkerProgress& progress) {
  for (const StepLoss& loss : progress.losses()) {
    // A rank reports its steps in ascending order, so an older one has been counted before.
    if (loss.step() <= newest_[rank]) continue;
    newest_[rank] = loss.step();
    curves_.Add(loss);
    recent_.push_back(loss);
    recent_.back().set_rank(progress.rank());
    if (recent_.size() > kRecent) recent_.pop_front();
    ++count_;
  }
}

void StepReports::AddTo(uint64_t seen, WatchJobReply* reply) const {
  const uint64_t dropped = count_ - recent_.size();
  // The caller has seen steps of an earlier scheduler.
  if (seen > count_) seen = 0;
  for (uint64_t i = std::max(seen, dropped); i < count_; ++i) {
    *reply->add_steps() = recent_[i - dropped];
  }
  reply->set_steps_seen(count_);
}

void StepReports::Restart(uint32_t worker_num) {
  newest_.assign(worker_num, 0);
  curves_.SetWorkers(worker_num);
}

void StepReports::DropSteps() {
  recent_ = {};
  newest_ = {};
  curves_.Take(/*all=*/true);
}

}  // namespace sluice
