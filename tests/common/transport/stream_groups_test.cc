#include "common/transport/stream_groups.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>

#include "tests/common/base/failing_allocations.h"

namespace sluice {
namespace {

TEST(StreamGroupsTest, TheLargestGroupIsThatWithTheMostStreamsAndThenTheOldest) {
  StreamGroups groups;
  EXPECT_EQ(groups.largest(), nullptr);
  const char streams[8] = {};
  const auto add = [&](const std::string& group, int n) { groups.Add(group, n, &streams[n]); };
  add("a", 0);
  add("b", 1);
  EXPECT_EQ(groups.largest()->first, "a");
  add("b", 2);
  EXPECT_EQ(groups.largest()->first, "b");
  EXPECT_EQ(groups.largest()->second.begin()->second, &streams[1]);
  groups.Remove("b", 1);
  EXPECT_EQ(groups.largest()->first, "a");
  groups.Remove("a", 2);
  groups.Remove("nobody", 0);
  EXPECT_EQ(groups.size(), 2u);
}

TEST(StreamGroupsTest, AStreamForWhichThereIsNoMemoryChangesNothing) {
  StreamGroups groups;
  const std::string large(100, 'a'), small(100, 'b');  // the names need memory, too
  groups.Add(large, 0, nullptr);
  groups.Add(large, 1, nullptr);
  uint64_t number = 2;
  for (const std::string& group : {small, small, large}) {
    const size_t size = groups.size(), of_group = groups.size_of(group);
    const int failures = FailEachAllocation([&] { groups.Add(group, number, nullptr); },
                                            [&] {
                                              EXPECT_EQ(groups.size(), size);
                                              EXPECT_EQ(groups.size_of(group), of_group);
                                              ASSERT_NE(groups.largest(), nullptr);
                                              EXPECT_EQ(groups.largest()->first, large);
                                              EXPECT_EQ(groups.largest()->second.size(), 2u);
                                            });
    EXPECT_GT(failures, 0);
    EXPECT_EQ(groups.size(), size + 1);
    ++number;
  }
  for (number = 0; number < 5; ++number) {
    groups.Remove(large, number);
    groups.Remove(small, number);
  }
  EXPECT_EQ(groups.size(), 0u);
  EXPECT_EQ(groups.largest(), nullptr);
}

TEST(StreamGroupsTest, RandomChangesKeepTheRankingTrue) {
  std::mt19937 random(7);
  StreamGroups groups;
  std::map<uint64_t, std::string> known;
  for (uint64_t number = 0; number < 5000; ++number) {
    if (random() % 2 == 0 || known.empty()) {
      const std::string group = std::to_string(random() % 10);
      groups.Add(group, number, nullptr);
      known[number] = group;
    } else {
      const auto any = std::next(known.begin(), random() % known.size());
      groups.Remove(any->second, any->first);
      known.erase(any);
    }
    ASSERT_EQ(groups.size(), known.size());
    std::map<std::string, std::pair<size_t, uint64_t>> expected;  // streams, and the oldest
    for (const auto& [stream, group] : known) {
      const auto it = expected.try_emplace(group, 0, stream).first;
      ++it->second.first;
    }
    const StreamGroups::Group* const largest = groups.largest();
    ASSERT_EQ(largest == nullptr, expected.empty());
    for (const auto& [group, size_and_oldest] : expected) {
      ASSERT_GE(largest->second.size(), size_and_oldest.first);
      if (largest->second.size() == size_and_oldest.first) {
        ASSERT_LE(largest->second.begin()->first, size_and_oldest.second);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
