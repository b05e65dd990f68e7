#include "scheduler/waiting_calls.h"

namespace sluice {

void WaitingCalls::Add(Call call) {
  const Number number = next_++;
  by_key_[call.key].insert(number);
  by_deadline_.insert({call.deadline, number});
  calls_.emplace(number, std::move(call));
}

std::vector<WaitingCalls::Answer> WaitingCalls::Settle(SchedulerCore* core, absl::Time now,
                                                       bool all) {
  std::vector<Answer> answers;
  // Making an answer may make another call ready: telling a rank of the end withdraws it.
  for (;;) {
    Numbers ripe;
    CollectReady(core, &ripe);
    CollectDue(now, all, &ripe);
    if (ripe.empty()) return answers;
    for (const Number number : ripe) answers.push_back(Remove(number).finish(*core, now));
  }
}

void WaitingCalls::CollectReady(SchedulerCore* core, Numbers* ripe) const {
  for (const WaitKey& key : core->TakeChanged()) {
    const auto waiting = by_key_.find(key);
    if (waiting == by_key_.end()) continue;
    for (const Number number : waiting->second) {
      if (ripe->count(number) == 0 && calls_.at(number).ready(*core)) ripe->insert(number);
    }
  }
}

void WaitingCalls::CollectDue(absl::Time now, bool all, Numbers* ripe) const {
  for (const auto& [deadline, number] : by_deadline_) {
    if (!all && now < deadline) return;
    ripe->insert(number);
  }
}

WaitingCalls::Call WaitingCalls::Remove(Number number) {
  const auto it = calls_.find(number);
  Call call = std::move(it->second);
  calls_.erase(it);
  by_deadline_.erase({call.deadline, number});
  const auto same_key = by_key_.find(call.key);
  same_key->second.erase(number);
  if (same_key->second.empty()) by_key_.erase(same_key);
  return call;
}

}  // namespace sluice
