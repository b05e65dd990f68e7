#include "server/copies/copy_register.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(CopyRegisterTest, OnlyTheNewestSuccessorMayReadAndDropCopies) {
  CopyRegister copies;
  copies.Assign(0, true, 1);
  const uint64_t number = copies.Begin(0, 1).value();
  copies.Complete(0, number);
  EXPECT_EQ(copies.Seal(0, 2).value(), number);
  EXPECT_TRUE(copies.CheckReader(0, number, 2).ok());
  // The first successor is believed dead, and another one begins to read.
  EXPECT_EQ(copies.Seal(0, 4).value(), number);
  EXPECT_TRUE(absl::IsFailedPrecondition(copies.CheckReader(0, number, 2)));
  EXPECT_TRUE(copies.CheckReader(0, number, 4).ok());
  EXPECT_TRUE(copies.Drop(0, number));
  EXPECT_TRUE(absl::IsNotFound(copies.CheckReader(0, number, 4)));
}

TEST(CopyRegisterTest, TakesCopiesOnlyOfAPrimaryThatItFollows) {
  CopyRegister copies;
  EXPECT_TRUE(absl::IsFailedPrecondition(copies.Begin(0, 1).status()));
  copies.Assign(0, true, 3);
  EXPECT_TRUE(absl::IsFailedPrecondition(copies.Begin(0, 2).status())) << "an older route";
  const auto number = copies.Begin(0, 3);
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_EQ(copies.generation(0), 3u);
  EXPECT_TRUE(copies.TakesChanges(0, *number));
  // Another stream begins anew while they are incomplete.
  const auto again = copies.Begin(0, 3);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(copies.TakesChanges(0, *number));
  copies.Complete(0, *number);
  EXPECT_FALSE(copies.HasCompleteForTest(0)) << "these copies are gone";
  copies.Complete(0, *again);
  EXPECT_TRUE(absl::IsFailedPrecondition(copies.Begin(0, 3).status()));
}

TEST(CopyRegisterTest, SealedCopiesTakeNoChanges) {
  CopyRegister copies;
  copies.Assign(0, true, 1);
  const uint64_t number = copies.Begin(0, 1).value();
  EXPECT_TRUE(absl::IsNotFound(copies.Seal(0, 2).status())) << "they are not complete";
  EXPECT_TRUE(absl::IsFailedPrecondition(copies.Begin(0, 1).status())) << "a successor is named";
  const uint64_t next = copies.Begin(0, 2).value();
  EXPECT_NE(next, number);
  copies.Complete(0, next);
  ASSERT_TRUE(copies.Seal(0, 3).ok());
  EXPECT_FALSE(copies.TakesChanges(0, next));
  EXPECT_TRUE(copies.complete(0, next));
}

TEST(CopyRegisterTest, ARouteWithAnotherFollowerDropsThem) {
  CopyRegister copies;
  copies.Assign(0, true, 1);
  const uint64_t number = copies.Begin(0, 1).value();
  EXPECT_FALSE(copies.Assign(0, true, 2));
  EXPECT_TRUE(copies.Assign(0, false, 3));
  EXPECT_FALSE(copies.TakesChanges(0, number));
  EXPECT_FALSE(copies.Drop(0, number));
  copies.Assign(0, true, 4);
  EXPECT_TRUE(absl::IsFailedPrecondition(copies.Begin(0, 2).status()))
      << "this primary does not know that it had another follower meanwhile";
}

}  // namespace
}  // namespace sluice
