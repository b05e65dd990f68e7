// Streams in named groups, of which it knows the largest.
//
// Invariants: no group is empty.
//
// Cost: each call takes a time that grows with the logarithm of the number of streams.
//
// Thread safety: none; the owner locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

namespace sluice {

class StreamGroups {
 public:
  using Id = const void*;
  using Number = uint64_t;               // of a stream, in the order in which they were opened
  using Streams = std::map<Number, Id>;  // the oldest first

  StreamGroups() = default;
  // The ranking points into the groups.
  StreamGroups(const StreamGroups&) = delete;
  StreamGroups& operator=(const StreamGroups&) = delete;

  // `number`: of no stream that is here. Changes nothing if it throws for want of memory.
  void Add(const std::string& group, Number number, Id id);
  // Streams that are not here are ignored.
  void Remove(const std::string& group, Number number) noexcept;

  size_t size() const { return size_; }  // streams of all groups
  size_t size_of(const std::string& group) const {
    const auto found = groups_.find(group);
    return found == groups_.end() ? 0 : found->second.size();
  }
  using Group = std::unordered_map<std::string, Streams>::value_type;
  // The group with the most streams; of several, the one with the oldest stream. Null: no stream is
  // here. Valid until the next change.
  const Group* largest() const {
    return ranking_.empty() ? nullptr : std::get<2>(*ranking_.begin());
  }

 private:
  // The largest group first.
  using Rank = std::tuple<size_t /*SIZE_MAX - streams*/, Number /*the oldest*/, const Group*>;
  static Rank RankOf(const Group& group);

  std::unordered_map<std::string, Streams> groups_;
  std::set<Rank> ranking_;
  size_t size_ = 0;
};

}  // namespace sluice
