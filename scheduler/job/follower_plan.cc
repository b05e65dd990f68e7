#include "scheduler/job/follower_plan.h"

namespace sluice {

FollowerPlan::FollowerPlan(uint32_t pservers) : pservers_(pservers) {
  for (uint32_t i = 0; i < pservers; ++i) followers_.push_back(Next(i));
}

FollowerPlan::FollowerPlan(const google::protobuf::RepeatedField<uint32_t>& followers)
    : followers_(followers.begin(), followers.end()), pservers_(followers_.size()) {}

bool FollowerPlan::SetNone(uint32_t index, uint64_t generation) {
  if (followers_[index] == index) return false;
  followers_[index] = index;
  pservers_[index].void_after = generation;
  return true;
}

bool FollowerPlan::Note(uint32_t index, uint64_t generation, const HostedJob& report) {
  Pserver& pserver = pservers_[index];
  pserver.generation = report.generation();
  pserver.copies.clear();
  for (const ShardCopies& copies : report.copies()) {
    if (copies.complete()) pserver.copies.insert(copies.pserver());
  }
  // It holds back acknowledgements, and cannot reach the follower: it waits for its copies to be
  // void. An older report may be of an earlier follower. The report's own generation is held back
  // with the acknowledgements, so it may never become the present one.
  const Replication& replication = report.replication();
  if (replication.generation() != generation || !replication.complete() ||
      replication.error().empty()) {
    return false;
  }
  return SetNone(index, generation);
}

bool FollowerPlan::Lose(uint32_t index, uint64_t generation) {
  Pserver& pserver = pservers_[index];
  pserver.lost = true;
  pserver.generation = 0;
  pserver.copies.clear();
  bool changed = false;
  for (uint32_t i = 0; i < followers_.size(); ++i) {
    if (followers_[i] == index) changed |= SetNone(i, generation);
  }
  return changed;
}

bool FollowerPlan::Advance(uint64_t generation) {
  bool changed = false;
  for (uint32_t i = 0; i < followers_.size(); ++i) {
    if (followers_[i] != i) continue;
    const Pserver &primary = pservers_[i], &follower = pservers_[Next(i)];
    if (primary.lost || follower.lost || generation <= primary.void_after) continue;
    if (primary.generation != generation || follower.generation != generation) continue;
    followers_[i] = Next(i);
    changed = true;
  }
  return changed;
}

bool FollowerPlan::AllComplete() const {
  for (uint32_t i = 0; i < followers_.size(); ++i) {
    const uint32_t follower = followers_[i];
    if (follower == i || pservers_[follower].copies.count(i) == 0) return false;
  }
  return true;
}

FollowerPlan::Source FollowerPlan::SourceOf(uint32_t index, uint64_t generation) const {
  if (followers_[index] == index) return Source::kCheckpoint;
  const Pserver& follower = pservers_[followers_[index]];
  if (follower.generation != generation) return Source::kNotKnown;
  return follower.copies.count(index) > 0 ? Source::kCopies : Source::kCheckpoint;
}

bool FollowerPlan::GiveUpCopies(uint32_t index, uint64_t generation) {
  return SetNone(index, generation);
}

}  // namespace sluice
