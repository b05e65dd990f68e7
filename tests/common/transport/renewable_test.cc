#include "common/transport/renewable.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(RenewableTest, OpensWhenNeededAndAgainAfterAReplacement) {
  int opened = 0;
  Renewable<int> connection([&] { return std::make_shared<int>(++opened); });
  EXPECT_EQ(opened, 0);
  const auto first = connection.Get();
  EXPECT_EQ(*first, 1);
  EXPECT_EQ(connection.Get(), first);
  connection.Replace(first);
  EXPECT_EQ(*connection.Get(), 2);
  EXPECT_EQ(*first, 1) << "its users keep it";
}

TEST(RenewableTest, ManyUsersOfOneFailedConnectionReplaceItOnce) {
  int opened = 0;
  Renewable<int> connection([&] { return std::make_shared<int>(++opened); });
  const auto first = connection.Get();
  connection.Replace(first);
  const auto second = connection.Get();
  connection.Replace(first);
  EXPECT_EQ(connection.Get(), second);
  EXPECT_EQ(opened, 2);
}

}  // namespace
}  // namespace sluice
