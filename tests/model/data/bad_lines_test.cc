#include "model/data/bad_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(BadLinesTest, MergeAddsCountsAndKeepsTheFirstOnes) {
  BadLines a, b;
  EXPECT_THAT(a.Describe(), HasSubstr("no malformed lines"));
  a.Add("f:1", absl::InvalidArgumentError("odd"));
  EXPECT_EQ(a.Describe(), "1 malformed line: f:1: odd");
  for (int i = 0; i < 7; ++i) b.Add("g:" + std::to_string(i), absl::InvalidArgumentError("bad"));
  a.Merge(b);
  EXPECT_EQ(a.count, 8u);
  EXPECT_THAT(a.first, ElementsAre("f:1: odd", "g:0: bad", "g:1: bad", "g:2: bad", "g:3: bad"));
  EXPECT_THAT(a.Describe(), AllOf(HasSubstr("8 malformed lines"), HasSubstr("first 5"),
                                  HasSubstr("f:1: odd; g:0: bad")));
}

}  // namespace
}  // namespace sluice
