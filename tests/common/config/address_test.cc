#include "common/config/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string AddressRefusal(const std::string& text) {
  const auto addresses = ParseAddressList(text);
  EXPECT_TRUE(absl::IsInvalidArgument(addresses.status())) << text;
  return std::string(addresses.status().message());
}

TEST(AddressTest, OneOrSeveralAddressesInTheirOrder) {
  const auto one = ParseAddressList("127.0.0.1:0");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->size(), 1u);
  const auto three = ParseAddressList("b:1,[::1]:2,a:1");
  ASSERT_TRUE(three.ok()) << three.status();
  ASSERT_EQ(three->size(), 3u);
  EXPECT_EQ(ToText((*three)[0]), "b:1");
  EXPECT_EQ(ToText((*three)[1]), "[::1]:2");
  EXPECT_EQ(ToText((*three)[2]), "a:1");
}

TEST(AddressTest, OtherListsAreRefusedByThePartThatIsWrong) {
  EXPECT_THAT(AddressRefusal(""), HasSubstr("''"));
  EXPECT_THAT(AddressRefusal("a:1,"), HasSubstr("''"));
  EXPECT_THAT(AddressRefusal("a:1, b:1"), HasSubstr("' b:1'"));
  EXPECT_THAT(AddressRefusal("a:1,b"), HasSubstr("'b'"));
  EXPECT_THAT(AddressRefusal("a:1,b:0"), HasSubstr("'b:0'"));
  EXPECT_THAT(AddressRefusal("a:1,b:1,a:1"), HasSubstr("a:1 twice"));
}

TEST(AddressTest, LoopbackOnlyWhenAllAre) {
  EXPECT_TRUE(AllLoopback(*ParseAddressList("127.0.0.1:1,localhost:2")));
  EXPECT_FALSE(AllLoopback(*ParseAddressList("127.0.0.1:1,10.0.0.1:1")));
}

}  // namespace
}  // namespace sluice
