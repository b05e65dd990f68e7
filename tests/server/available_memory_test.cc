#include "server/available_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/env.h"

namespace sluice {
namespace {

TEST(AvailableMemoryTest, ReadsWhatTheKernelSays) {
  const std::string path = testing::TempDir() + "meminfo";
  ASSERT_TRUE(Env::Real()->WriteFile(path, {"MemTotal:  900 kB\nMemAvailable:     321 kB\n"}).ok());
  EXPECT_EQ(AvailableMemory(path), 321u << 10);
  ASSERT_TRUE(Env::Real()->WriteFile(path, {"MemTotal:  900 kB\n"}).ok());
  EXPECT_EQ(AvailableMemory(path), UINT64_MAX);
  EXPECT_EQ(AvailableMemory(path + ".none"), UINT64_MAX);
  const uint64_t here = AvailableMemory();
  EXPECT_GT(here, 1u << 20);
  EXPECT_LT(here, UINT64_MAX);
}

}  // namespace
}  // namespace sluice
