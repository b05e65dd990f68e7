#include "common/transport/stream_groups.h"

namespace sluice {

StreamGroups::Rank StreamGroups::RankOf(const Group& group) {
  return {SIZE_MAX - group.second.size(), group.second.begin()->first, &group};
}

void StreamGroups::Add(const std::string& group, Number number, Id id) {
  const auto found = groups_.try_emplace(group).first;
  if (!found->second.empty()) ranking_.erase(RankOf(*found));
  found->second.emplace(number, id);
  ranking_.insert(RankOf(*found));
  ++size_;
}

void StreamGroups::Remove(const std::string& group, Number number) {
  const auto found = groups_.find(group);
  if (found == groups_.end() || found->second.count(number) == 0) return;
  ranking_.erase(RankOf(*found));
  found->second.erase(number);
  --size_;
  if (found->second.empty()) {
    groups_.erase(found);
  } else {
    ranking_.insert(RankOf(*found));
  }
}

}  // namespace sluice
