#include "common/places/content_range.h"

#include "gmock/gmock.h"
#include "tests/common/places/fake_transport.h"

namespace sluice {
namespace {

TEST(ContentRangeTest, OnlyTheFullFormIsRead) {
  const auto range = ParseContentRange("bytes 5-9/100");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, 5u);
  EXPECT_EQ(range->last, 9u);
  EXPECT_EQ(range->size, 100u);
  for (const char* bad : {"", "bytes", "bytes 5-9", "bytes */100", "bytes 5-9/*", "5-9/100",
                          "bytes 9-5/100", "bytes 5-100/100", "bytes -9/100", "bytes 5/9-100",
                          "bytes 5-99999999999999999999/100", "bytes -"})
    EXPECT_FALSE(ParseContentRange(bad).has_value()) << bad;
}

TEST(ContentRangeTest, AnAnswerMustHoldTheBytesAskedFor) {
  const auto code = [](const std::string& range, const std::string& body) {
    return CheckPart(Answer(206, body, {{"content-range", range}}), 3, 2, 10).code();
  };
  EXPECT_EQ(code("bytes 3-4/10", "34"), absl::StatusCode::kOk);
  for (const char* other : {"", "bytes 0-1/10", "bytes 3-5/10", "bytes 4-5/10"})
    EXPECT_EQ(code(other, "34"), absl::StatusCode::kUnavailable) << other;
  EXPECT_EQ(code("bytes 3-4/10", "3"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("bytes 3-4/11", "34"), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sluice
