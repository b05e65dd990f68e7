#include "scheduler/job/step_reports.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {

void StepCurves::Add(const StepLoss& loss) {
  const auto step = open_.try_emplace(loss.step()).first;
  Open& open = step->second;
  open.loss_sum += loss.loss();
  ++open.ranks;
  if (loss.examples_per_second() > 0) {
    open.speed += loss.examples_per_second();
    ++open.with_speed;
  }
  for (const NamedValue& user : loss.user()) {
    Open::Logged& logged = open.logged[user.name()];
    logged.sum += user.value();
    ++logged.ranks;
  }
  if (open.ranks >= worker_num_) {
    Close(step);
  } else if (open_.size() > kOpenSteps) {
    // Ranks report their steps in order, so the oldest open step has waited longest for the slowest
    // rank.
    Close(open_.begin());
  }
}

std::vector<Scalar> StepCurves::Take(bool all) {
  while (all && !open_.empty()) Close(open_.begin());
  return std::exchange(points_, {});
}

void StepCurves::Close(OpenSteps::iterator step) {
  const Open& open = step->second;
  const bool is_drawn = closed_++ % stride_ == 0;
  if (is_drawn && ++drawn_ % steps_of_a_stride_ == 0) stride_ *= 2;
  if (!is_drawn) {
    open_.erase(step);
    return;
  }
  // The loss is a mean, which stays meaningful when a rank is missing. The speed is a sum, which
  // would then be too small.
  points_.push_back({"train/loss", step->first, open.loss_sum / open.ranks});
  if (open.with_speed == worker_num_)
    points_.push_back({"train/examples_per_second", step->first, open.speed});
  for (const auto& [name, logged] : open.logged) {
    const double mean = logged.sum / logged.ranks;
    // Readers would take the gap that they make of NaN for a lack of steps.
    if (std::isfinite(mean)) points_.push_back({"train/" + name, step->first, mean});
  }
  open_.erase(step);
}

void StepReports::Add(uint32_t rank, const google::protobuf::RepeatedPtrField<StepLoss>& losses) {
  for (const StepLoss& loss : losses) {
    // A rank reports its steps in ascending order, so an older one has been counted before.
    if (loss.step() <= newest_[rank]) continue;
    newest_[rank] = loss.step();
    curves_.Add(loss);
    recent_.push_back(loss);
    recent_.back().set_rank(rank);
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
