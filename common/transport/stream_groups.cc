#include "common/transport/stream_groups.h"

#include <utility>

namespace sluice {

StreamGroups::Rank StreamGroups::RankOf(const Group& group) {
  return {SIZE_MAX - group.second.size(), group.second.begin()->first, &group};
}

void StreamGroups::Add(const std::string& group, Number number, Id id) {
  // Allocate first: moving the nodes afterwards cannot fail.
  Streams stream = {{number, id}};
  std::set<Rank> first_rank = {Rank()};
  const auto found = groups_.try_emplace(group).first;
  auto rank = found->second.empty() ? first_rank.extract(first_rank.begin())
                                    : ranking_.extract(RankOf(*found));
  found->second.merge(stream);
  rank.value() = RankOf(*found);
  ranking_.insert(std::move(rank));
  ++size_;
}

void StreamGroups::Remove(const std::string& group, Number number) noexcept {
  const auto found = groups_.find(group);
  if (found == groups_.end() || found->second.count(number) == 0) return;
  auto rank = ranking_.extract(RankOf(*found));
  found->second.erase(number);
  --size_;
  if (found->second.empty()) {
    groups_.erase(found);
    return;
  }
  rank.value() = RankOf(*found);
  ranking_.insert(std::move(rank));
}

}  // namespace sluice
