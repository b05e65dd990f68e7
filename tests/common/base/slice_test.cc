#include "common/base/slice.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace sluice {
namespace {

TEST(SliceTest, EmptyByDefault) {
  EXPECT_EQ(Slice().size(), 0u);
  EXPECT_EQ(Slice().data(), nullptr);
}

TEST(SliceTest, KeepsItsStringAliveWithoutMovingIt) {
  Slice copy;
  const uint8_t* where;
  {
    const Slice slice = Slice::FromString("short");  // the bytes lie in the string object itself
    where = slice.data();
    copy = slice;
  }
  EXPECT_EQ(copy.data(), where);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(copy.data()), copy.size()), "short");
}

TEST(SliceTest, LastCopyFreesTheOwner) {
  auto owner = std::make_shared<const std::string>("bytes");
  std::weak_ptr<const std::string> watch = owner;
  Slice a(owner->data(), 5, owner);
  owner.reset();
  Slice b = a;
  a = Slice();
  EXPECT_FALSE(watch.expired());
  b = Slice();
  EXPECT_TRUE(watch.expired());
}

TEST(SliceTest, SizeOfAMessageIsTheSumOfItsSlices) {
  EXPECT_EQ(MessageSize({}), 0u);
  EXPECT_EQ(MessageSize({Slice::FromString("abc"), Slice(), Slice::FromString("de")}), 5u);
}

}  // namespace
}  // namespace sluice
