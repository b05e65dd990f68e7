#include "common/daemon/process_limits.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(ProcessLimitsTest, ThreadsThatCanBeStartedPass) {
  EXPECT_TRUE(CheckThreadLimit(kThreadsOfADaemon).ok());
  EXPECT_TRUE(CheckThreadLimit(100 * kMostThreadsTried).ok()) << "more than are tried";
}

TEST(ProcessLimitsTest, ReachedLimitIsAnError) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer maps more memory than the limit of this test allows";
#endif
  const pid_t child = fork();
  if (child == 0) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit;
    limit.rlim_cur = limit.rlim_max = pages * sysconf(_SC_PAGESIZE) + (8 << 20);
    const bool set = setrlimit(RLIMIT_AS, &limit) == 0;
    _exit(set && absl::IsResourceExhausted(CheckThreadLimit(1000)) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ProcessLimitsTest, TheFileLimitIsRaisedAsFarAsItMayBe) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(256, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  RaiseFileLimit();
  rlimit now;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, before.rlim_max);
  EXPECT_EQ(now.rlim_max, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace sluice
