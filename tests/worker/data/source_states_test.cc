#include "worker/data/source_states.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// The state before batch `batches`; nullopt: there is none.
std::optional<uint64_t> At(const SourceStates& states, uint32_t epoch, uint64_t batches) {
  const std::optional<SourceState> state = states.Before(epoch, batches);
  return state ? std::optional<uint64_t>(state->batches) : std::nullopt;
}

TEST(SourceStatesTest, GivesTheNewestOfTheEpochThatIsNotBehindThePlace) {
  SourceStates states;
  EXPECT_EQ(At(states, 0, 100), std::nullopt);
  for (const uint64_t batches : {64, 128, 192}) EXPECT_TRUE(states.Keep({0, batches, "s"}));
  EXPECT_TRUE(states.Keep({1, 64, "next"}));
  EXPECT_EQ(At(states, 0, 63), std::nullopt);
  EXPECT_EQ(At(states, 0, 64), 64u);
  EXPECT_EQ(At(states, 0, 191), 128u);
  EXPECT_EQ(At(states, 0, 1000), 192u);
  EXPECT_EQ(At(states, 1, 1000), 64u);
  EXPECT_EQ(states.Before(1, 64)->bytes, "next");
}

TEST(SourceStatesTest, KeepsTheNewestOnesAndNoneOfAReadingThatIsRepeated) {
  SourceStates states;
  for (uint64_t n = 1; n <= SourceStates::kKept + 1; ++n) EXPECT_TRUE(states.Keep({2, n, "old"}));
  EXPECT_EQ(At(states, 2, 1), std::nullopt);
  EXPECT_EQ(At(states, 2, 2), 2u);
  // The job has gone back.
  EXPECT_TRUE(states.Keep({2, 3, "new"}));
  EXPECT_EQ(states.Before(2, 100)->bytes, "new");
  EXPECT_EQ(At(states, 2, 2), 2u);
  EXPECT_TRUE(states.Keep({1, 9, "earlier epoch"}));
  EXPECT_EQ(At(states, 2, 100), std::nullopt);
}

TEST(SourceStatesTest, LargeOnesAreRefused) {
  SourceStates states;
  EXPECT_FALSE(states.Keep({0, 1, std::string(SourceStates::kMaxBytes + 1, 'x')}));
  EXPECT_EQ(At(states, 0, 1), std::nullopt);
}

}  // namespace
}  // namespace sluice
