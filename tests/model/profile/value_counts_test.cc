#include "model/profile/value_counts.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ValueCountsTest, FewValuesAreExact) {
  ValueCounts counts;
  for (const char* value : {"b", "a", "c", "a", "b", "a"}) counts.Add(value);
  EXPECT_TRUE(counts.exact());
  EXPECT_THAT(counts.Sorted(), ElementsAre(Pair("a", 3), Pair("b", 2), Pair("c", 1)));
}

TEST(ValueCountsTest, CountsOfManyValuesAreTooLowByTheErrorAtMost) {
  ValueCounts counts;
  std::map<std::string, uint64_t> exact;
  std::mt19937_64 random(3);
  for (int i = 0; i < 100000; ++i) {
    // Half are "often", the rest hardly ever the same.
    const std::string value = random() % 2 == 0 ? "often" : std::to_string(random() % 50000);
    counts.Add(value);
    ++exact[value];
  }
  EXPECT_FALSE(counts.exact());
  EXPECT_LE(counts.error(), 100000 / ValueCounts::kMost);
  const auto sorted = counts.Sorted();
  ASSERT_FALSE(sorted.empty());
  EXPECT_EQ(sorted[0].first, "often");
  for (const auto& [value, count] : sorted) {
    EXPECT_LE(count, exact[value]);
    EXPECT_GE(count + counts.error(), exact[value]);
  }
}

}  // namespace
}  // namespace sluice
