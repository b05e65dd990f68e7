#include "scheduler/job/rank_gathers.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointee;

constexpr uint32_t kRanks = 2;

GatherRequest Call(uint32_t rank, uint32_t epochs_done, uint32_t number, const std::string& data,
                   const std::string& what = "sum") {
  GatherRequest request;
  request.set_job_id("j-1");
  request.set_rank(rank);
  request.set_epochs_done(epochs_done);
  request.set_number(number);
  request.set_what(what);
  request.set_data(data);
  return request;
}

// Lets both ranks make the call.
void Complete(RankGathers* gathers, uint32_t epochs_done, uint32_t number,
              const std::string& data = "x") {
  for (const uint32_t rank : {0, 1})
    ASSERT_TRUE(gathers->Take(Call(rank, epochs_done, number, data), kRanks).ok());
}

bool Has(const RankGathers& gathers, uint32_t epochs_done, uint32_t number) {
  const auto found = gathers.Find(Call(0, epochs_done, number, ""));
  return found.ok() && *found != nullptr;
}

TEST(RankGathersTest, ACallIsCompleteWhenAllRanksHaveGiven) {
  RankGathers gathers;
  EXPECT_EQ(gathers.Take(Call(1, 0, 0, "b"), kRanks).value(), false);
  EXPECT_FALSE(Has(gathers, 0, 0));
  EXPECT_THAT(gathers.Missing(Call(1, 0, 0, "")), ElementsAre(0));
  EXPECT_EQ(gathers.Take(Call(0, 0, 0, "a"), kRanks).value(), true);
  EXPECT_THAT(gathers.Find(Call(0, 0, 0, "")).value(), Pointee(ElementsAre("a", "b")));
}

TEST(RankGathersTest, WhatARankHasGivenFirstStays) {
  RankGathers gathers;
  EXPECT_EQ(gathers.Take(Call(1, 0, 0, "first"), kRanks).value(), false);
  EXPECT_EQ(gathers.Take(Call(1, 0, 0, "again"), kRanks).value(), false);
  EXPECT_EQ(gathers.Take(Call(0, 0, 0, "a"), kRanks).value(), true);
  EXPECT_EQ(gathers.Take(Call(1, 0, 0, "late"), kRanks).value(), false) << "it was over before";
  EXPECT_THAT(gathers.Find(Call(1, 0, 0, "")).value(), Pointee(ElementsAre("a", "first")));
}

TEST(RankGathersTest, DifferentCallsAreAnErrorForAllThatNamesBoth) {
  RankGathers gathers;
  EXPECT_TRUE(gathers.Take(Call(0, 3, 1, "", "barrier"), kRanks).ok());
  const absl::Status differs = gathers.Take(Call(1, 3, 1, "", "sum"), kRanks).status();
  EXPECT_TRUE(absl::IsInvalidArgument(differs));
  EXPECT_THAT(std::string(differs.message()),
              HasSubstr("call 2 at the end of epoch 3: rank 1 is at sum and rank 0 at barrier"));
  EXPECT_EQ(gathers.Find(Call(0, 3, 1, "", "barrier")).status(), differs);
  // A complete call stays, whatever a later life of a rank does.
  Complete(&gathers, 3, 0);
  EXPECT_FALSE(gathers.Take(Call(1, 3, 0, "", "barrier"), kRanks).ok());
  EXPECT_TRUE(Has(gathers, 3, 0));
}

TEST(RankGathersTest, ARankThatHasGoneOnEndsTheWait) {
  RankGathers gathers;
  EXPECT_TRUE(gathers.Take(Call(0, 1, 0, "a"), kRanks).ok());
  const absl::Status left = gathers.LeftBy(1, Call(0, 1, 0, ""));
  EXPECT_THAT(std::string(left.message()), HasSubstr("rank 1 has gone on without it"));
  EXPECT_EQ(gathers.Find(Call(0, 1, 0, "")).status(), left);
}

TEST(RankGathersTest, TheFirstBorderStaysAndOfTheOthersTheNewest) {
  RankGathers gathers;
  for (const uint32_t epochs_done : {0, 1, 2}) Complete(&gathers, epochs_done, 0);
  EXPECT_TRUE(Has(gathers, 0, 0));
  EXPECT_FALSE(Has(gathers, 1, 0));
  EXPECT_TRUE(Has(gathers, 2, 0));
}

TEST(RankGathersTest, TheNextAttemptKeepsWhatIsCompleteOfTheFirstBorder) {
  RankGathers gathers;
  Complete(&gathers, 0, 0);
  EXPECT_TRUE(gathers.Take(Call(0, 0, 1, "a"), kRanks).ok());
  Complete(&gathers, 1, 0);
  gathers.EndAttempt();
  EXPECT_TRUE(Has(gathers, 0, 0));
  EXPECT_FALSE(Has(gathers, 1, 0));
  // Now with another number of ranks.
  for (const uint32_t rank : {0, 1, 2})
    EXPECT_EQ(gathers.Take(Call(rank, 0, 1, "b"), 3).value(), rank == 2);
  EXPECT_THAT(gathers.Find(Call(2, 0, 1, "")).value(), Pointee(ElementsAre("b", "b", "b")));
  EXPECT_EQ(gathers.Take(Call(2, 0, 0, "new rank"), 3).value(), false);
  EXPECT_THAT(gathers.Find(Call(2, 0, 0, "")).value(), Pointee(ElementsAre("x", "x")));
}

TEST(RankGathersTest, CallsAndBytesAreBounded) {
  RankGathers gathers;
  EXPECT_TRUE(gathers.Take(Call(0, 0, RankGathers::kMaxCalls - 1, ""), kRanks).ok());
  EXPECT_THAT(
      std::string(gathers.Take(Call(0, 0, RankGathers::kMaxCalls, ""), kRanks).status().message()),
      HasSubstr("at most 64 calls"));
  const std::string half(RankGathers::kMaxCallBytes / 2, 'x');
  EXPECT_TRUE(gathers.Take(Call(0, 0, 0, half), kRanks).ok());
  const absl::Status large = gathers.Take(Call(1, 0, 0, half + "x"), kRanks).status();
  EXPECT_TRUE(absl::IsInvalidArgument(large));
  EXPECT_THAT(std::string(large.message()), HasSubstr("1048576 bytes to the call"));
  EXPECT_EQ(gathers.Find(Call(0, 0, 0, "")).status(), large) << "rank 0 does not wait on";
}

TEST(RankGathersTest, TheCallsOfABorderAreBoundedTogether) {
  RankGathers gathers;
  const std::string half(RankGathers::kMaxCallBytes / 2, 'x');
  uint32_t number = 0;
  for (size_t bytes = 0; bytes < RankGathers::kMaxBorderBytes; bytes += 2 * half.size())
    Complete(&gathers, 1, number++, half);
  EXPECT_THAT(std::string(gathers.Take(Call(0, 1, number, "x"), kRanks).status().message()),
              HasSubstr("the calls of this border"));
  EXPECT_TRUE(gathers.Take(Call(0, 2, 0, "x"), kRanks).ok()) << "the next border has its own";
}

TEST(RankGathersTest, ACompleteCallIsARecord) {
  RankGathers gathers;
  Complete(&gathers, 2, 1, "y");
  const GatherRecord record = gathers.RecordOf(Call(0, 2, 1, ""));
  EXPECT_EQ(record.job_id(), "j-1");
  RankGathers restored;
  restored.Restore(record);
  EXPECT_EQ(restored.Take(Call(1, 2, 1, "other"), kRanks).value(), false);
  EXPECT_THAT(restored.Find(Call(1, 2, 1, "")).value(), Pointee(ElementsAre("y", "y")));
  restored.Restore(GatherRecord());
  EXPECT_FALSE(Has(restored, 0, 0)) << "of a damaged store";
}

}  // namespace
}  // namespace sluice
