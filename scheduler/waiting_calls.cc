#include "scheduler/waiting_calls.h"

namespace sluice {

void WaitingCalls::Add(Call call) {
  const Number number = next_++;
  by_key_[call.key].insert(number);
  Numbers& of_caller = by_caller_[call.caller];
  of_caller.insert(number);
  if (of_caller.size() > max_per_caller_) {
    ++crowded_out_;
    without_room_.insert(*of_caller.begin());
  }
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
    ripe.insert(without_room_.begin(), without_room_.end());
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
  without_room_.erase(number);
  const auto same_key = by_key_.find(call.key);
  same_key->second.erase(number);
  if (same_key->second.empty()) by_key_.erase(same_key);
  const auto same_caller = by_caller_.find(call.caller);
  same_caller->second.erase(number);
  if (same_caller->second.empty()) by_caller_.erase(same_caller);
  return call;
}

}  // namespace sluice
