#include "common/daemon/process_info.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

namespace sluice {
namespace {

TEST(ProcessInfoTest, ProcessAndItsChildShareTheirSpace) {
  const std::string space = ProcessSpace();
  ASSERT_NE(space, "");
  const pid_t child = fork();
  if (child == 0) _exit(ProcessSpace() == space ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ProcessInfoTest, CpuTimeGrowsWithWorkAndNotWithWaiting) {
  const double before = CpuSeconds();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (CpuSeconds() < before + 0.02 && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_GE(CpuSeconds(), before + 0.02);
  // A host may charge this process for time that it takes away from it.
  double used = 1;
  for (int i = 0; i < 50 && used >= 0.015; ++i) {
    const double rested = CpuSeconds();
    usleep(20'000);
    used = CpuSeconds() - rested;
  }
  EXPECT_LT(used, 0.015);
}

TEST(ProcessInfoTest, DistinguishesRunningStoppedAndEndedProcesses) {
  EXPECT_FALSE(ProcessHasEnded(static_cast<uint32_t>(getpid())));
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const uint32_t pid = static_cast<uint32_t>(child);
  EXPECT_FALSE(ProcessHasEnded(pid));
  kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_FALSE(ProcessHasEnded(pid));
  kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(ProcessHasEnded(pid)) << "a process that waits to be reaped has ended";
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(ProcessHasEnded(pid));
}

TEST(ProcessInfoTest, InvalidPidsHaveNotEnded) {
  EXPECT_FALSE(ProcessHasEnded(0));
  EXPECT_FALSE(ProcessHasEnded(~0u));
}

}  // namespace
}  // namespace sluice
