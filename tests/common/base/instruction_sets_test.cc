#include "common/base/instruction_sets.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

TEST(InstructionSetsTest, TheBestIsTheLastSupportedUnlessATestChooses) {
  const std::vector<InstructionSet> all = SupportedInstructionSetsForTest();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front(), InstructionSet::kPortable);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(BestInstructionSet(), all.back());
  for (const InstructionSet set : all) {
    UseInstructionSetForTest(set);
    EXPECT_EQ(BestInstructionSet(), set);
    EXPECT_EQ(SupportedInstructionSetsForTest(), all);
  }
  UseInstructionSetForTest(std::nullopt);
  EXPECT_EQ(BestInstructionSet(), all.back());
}

}  // namespace
}  // namespace sluice
