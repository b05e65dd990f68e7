#include "scheduler/service/waiting_calls.h"

#include <utility>

namespace sluice {

std::optional<std::string> WaitingCalls::Add(Call call) {
  const Number number = next_++;
  by_key_[call.key].insert(number);
  ChangeCallsOf(call.caller, [number](Numbers* calls) { calls->insert(number); });
  std::optional<std::string> loser;
  // The caller that is over its own bound pays first. Only when all together are too many does the
  // busiest one pay, whoever called last.
  if (by_caller_.at(call.caller).size() > room_.waiting_per_caller) {
    loser = call.caller;
  } else if (calls_.size() >= room_.waiting) {
    loser = ranking_.rbegin()->second;
  }
  if (loser.has_value()) CrowdOut(*loser);
  if (!call.name.empty()) {
    const auto [older, is_first] = by_name_.try_emplace(call.name, number);
    // The older call stays until Settle answers it: its answer may change the core, which Add does
    // not have.
    if (!is_first) without_room_.insert(std::exchange(older->second, number));
  }
  by_deadline_.insert({call.deadline, number});
  calls_.emplace(number, std::move(call));
  return loser;
}

void WaitingCalls::CrowdOut(const std::string& caller) {
  ++crowded_out_;
  without_room_.insert(*by_caller_.at(caller).begin());
}

template <class Change>
void WaitingCalls::ChangeCallsOf(const std::string& caller, const Change& change) {
  const auto calls = by_caller_.try_emplace(caller).first;
  // The size is part of the key, so the entry leaves before it changes.
  ranking_.erase({calls->second.size(), caller});
  change(&calls->second);
  if (calls->second.empty()) {
    by_caller_.erase(calls);
  } else {
    ranking_.insert({calls->second.size(), caller});
  }
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
    // By number, which is the order in which the calls came. Answers run later, without the lock.
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
  ChangeCallsOf(call.caller, [number](Numbers* calls) { calls->erase(number); });
  const auto same_name = by_name_.find(call.name);
  // A newer call may have taken the name.
  if (same_name != by_name_.end() && same_name->second == number) by_name_.erase(same_name);
  return call;
}

}  // namespace sluice
