#include "server/service/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/base/env.h"

namespace sluice {
namespace {

class AvailableMemoryTest : public testing::Test {
 protected:
  AvailableMemoryTest()
      : root_(testing::TempDir() + "available_memory." +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    Write("/proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:     5000 kB\n");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::string full = root_ + path;
    ASSERT_TRUE(Env::Real()->MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(Env::Real()->WriteFile(full, {absl::string_view(text)}).ok());
  }
  void WriteGroup(const std::string& folder, const std::string& limit, const std::string& usage) {
    Write("/sys/fs/cgroup" + folder + "/memory.max", limit + "\n");
    Write("/sys/fs/cgroup" + folder + "/memory.current", usage + "\n");
  }
  uint64_t Available() const { return AvailableMemory(root_); }

  const std::string root_;
};

TEST_F(AvailableMemoryTest, ReadsAvailableMemoryOfTheMachine) {
  EXPECT_EQ(Available(), 5000u << 10);
  Write("/proc/meminfo", "MemTotal:  900 kB\n");
  EXPECT_EQ(Available(), UINT64_MAX);
  EXPECT_EQ(AvailableMemory(root_ + ".none"), UINT64_MAX);
  const uint64_t here = AvailableMemory();
  EXPECT_GT(here, 1u << 20);
  EXPECT_LT(here, UINT64_MAX);
}

TEST_F(AvailableMemoryTest, RespectsTheLimitOfTheControlGroup) {
  Write("/proc/self/cgroup", "0::/jobs/one\n");
  WriteGroup("/jobs/one", "3000000", "1000000");
  EXPECT_EQ(Available(), 2000000u);
  WriteGroup("/jobs/one", "max", "1000000");
  EXPECT_EQ(Available(), 5000u << 10);
  WriteGroup("/jobs/one", "1000", "4000");  // lowered below its usage
  EXPECT_EQ(Available(), 0u);
  WriteGroup("/jobs/one", "90000000000", "1000000");
  EXPECT_EQ(Available(), 5000u << 10) << "the machine has less than the limit";
}

TEST_F(AvailableMemoryTest, RespectsLimitsOfParentGroups) {
  Write("/proc/self/cgroup", "0::/jobs/one\n");
  WriteGroup("/jobs/one", "3000000", "1000000");
  WriteGroup("/jobs", "5000000", "4500000");
  EXPECT_EQ(Available(), 500000u);
}

TEST_F(AvailableMemoryTest, ReclaimableFileCacheIsNotUsage) {
  Write("/proc/self/cgroup", "0::/\n");
  WriteGroup("", "3000000", "2500000");
  Write("/sys/fs/cgroup/memory.stat", "anon 700\nactive_file 9\ninactive_file 2000000\n");
  EXPECT_EQ(Available(), 2500000u);
}

TEST_F(AvailableMemoryTest, GroupsNamedAsOnTheHostFallBackToTheMount) {
  Write("/proc/self/cgroup", "0::/docker/0123abcd\n");
  WriteGroup("", "2000000", "500000");
  EXPECT_EQ(Available(), 1500000u);
}

TEST_F(AvailableMemoryTest, ReadsControlGroupsOfVersionOne) {
  Write("/proc/self/cgroup", "12:cpu,cpuacct:/x\n7:memory,hugetlb:/slice/job\n0::/ignored\n");
  const std::string group = "/sys/fs/cgroup/memory/slice/job/";
  Write(group + "memory.limit_in_bytes", "4000000\n");
  Write(group + "memory.usage_in_bytes", "3000000\n");
  Write(group + "memory.stat", "inactive_file 1\ntotal_inactive_file 250000\n");
  EXPECT_EQ(Available(), 1250000u);
  Write(group + "memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  EXPECT_EQ(Available(), 5000u << 10);
}

}  // namespace
}  // namespace sluice
