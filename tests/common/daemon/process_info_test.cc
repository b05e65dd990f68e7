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
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (CpuSeconds() < before + 0.02 && std::chrono::steady_clock::now() < deadline) {
  }
  const double worked = CpuSeconds();
  EXPECT_GE(worked, before + 0.02);
  usleep(20'000);
  EXPECT_LT(CpuSeconds(), worked + 0.015);
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
