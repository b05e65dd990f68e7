#include "common/collective/nccl_network.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace sluice {
namespace {

constexpr char kVariable[] = "NCCL_SOCKET_IFNAME";

class NcclNetworkTest : public testing::Test {
 protected:
  NcclNetworkTest() { unsetenv(kVariable); }
  ~NcclNetworkTest() override { unsetenv(kVariable); }
  static std::string Interface() {
    const char* const value = std::getenv(kVariable);
    return value == nullptr ? "" : value;
  }
  NcclNetwork network_;
};

TEST_F(NcclNetworkTest, AGroupOnOneHostStaysOnLoopback) {
  ASSERT_TRUE(network_.Prepare(/*one_host=*/true).ok());
  EXPECT_EQ(Interface(), "=lo");
  ASSERT_TRUE(network_.Prepare(/*one_host=*/true).ok());
}

TEST_F(NcclNetworkTest, AGroupOnSeveralHostsUsesTheirNetwork) {
  ASSERT_TRUE(network_.Prepare(/*one_host=*/false).ok());
  EXPECT_EQ(Interface(), "");
  // NCCL has made its choice.
  ASSERT_TRUE(network_.Prepare(/*one_host=*/true).ok());
  EXPECT_EQ(Interface(), "");
  EXPECT_TRUE(network_.Prepare(/*one_host=*/false).ok());
}

TEST_F(NcclNetworkTest, AProcessOnLoopbackJoinsNoGroupOfSeveralHosts) {
  ASSERT_TRUE(network_.Prepare(/*one_host=*/true).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(network_.Prepare(/*one_host=*/false)));
  EXPECT_TRUE(network_.Prepare(/*one_host=*/true).ok());
}

TEST_F(NcclNetworkTest, TheChoiceOfTheUserIsKept) {
  setenv(kVariable, "eth7", 1);
  ASSERT_TRUE(network_.Prepare(/*one_host=*/true).ok());
  EXPECT_EQ(Interface(), "eth7");
  EXPECT_TRUE(network_.Prepare(/*one_host=*/false).ok());
}

}  // namespace
}  // namespace sluice
