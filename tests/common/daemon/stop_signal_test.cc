#include "common/daemon/stop_signal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace sluice {
namespace {

// Runs `body` in a child process and returns its wait status. `ready` runs in this process once
// `body` has written a byte to `ready_fd`.
int InChild(const std::function<int(int ready_fd)>& body, const std::function<void(pid_t)>& ready) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGINT, SIG_DFL);  // a script starts its background jobs with SIGINT ignored
    alarm(20);
    _exit(body(fds[1]));
  }
  close(fds[1]);
  char byte;
  if (read(fds[0], &byte, 1) == 1) ready(pid);
  close(fds[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

void Tell(int fd) { EXPECT_EQ(write(fd, "x", 1), 1); }

TEST(StopSignalTest, SignalsEndTheWaitWithTheExitCodeOfShells) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = InChild(
        [](int fd) -> int {
          StopSignal::Install(false);
          // Threads started later must not take the signal.
          std::thread idle([] { sleep(20); });
          idle.detach();
          Tell(fd);
          return StopSignal::Wait();
        },
        [signal](pid_t pid) { kill(pid, signal); });
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
  }
}

TEST(StopSignalTest, SignalsThatWereIgnoredStayIgnored) {
  for (const int ignored : {SIGINT, SIGHUP}) {
    const int status = InChild(
        [ignored](int fd) -> int {
          signal(ignored, SIG_IGN);
          StopSignal::Install(false);
          Tell(fd);
          return StopSignal::Wait();
        },
        [ignored](pid_t pid) {
          kill(pid, ignored);
          kill(pid, SIGTERM);
        });
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  }
}

TEST(StopSignalTest, HangUpReopensTheLogWithoutATerminalAndEndsNothing) {
  int reopened[2];
  ASSERT_EQ(pipe(reopened), 0);
  const int status = InChild(
      [&](int fd) -> int {
        setsid();
        StopSignal::Install(false);
        StopSignal::ReopenOnHangUp([&] { Tell(reopened[1]); });
        Tell(fd);
        return StopSignal::Wait();
      },
      [&](pid_t pid) {
        char byte;
        for (int i = 0; i < 2; ++i) {
          kill(pid, SIGHUP);
          EXPECT_EQ(read(reopened[0], &byte, 1), 1);
        }
        kill(pid, SIGTERM);
      });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

TEST(StopSignalTest, HangUpEndsAProcessThatHasATerminal) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  const int status = InChild(
      [&](int fd) -> int {
        setsid();
        close(terminal);
        open(name.c_str(), O_RDWR);  // becomes the controlling terminal
        StopSignal::Install(false);
        StopSignal::ReopenOnHangUp([] { _exit(1); });
        Tell(fd);
        return StopSignal::Wait();
      },
      [&](pid_t) { close(terminal); });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGHUP);
}

TEST(StopSignalTest, ASecondSignalCanBeWaitedForAndAThirdEndsTheProcess) {
  const int status = InChild(
      [](int fd) -> int {
        StopSignal::Install(false);
        kill(getpid(), SIGTERM);
        StopSignal::Wait();
        if (StopSignal::WaitForSecond([] { return true; })) return 1;
        Tell(fd);
        if (!StopSignal::WaitForSecond([] { return false; })) return 2;
        raise(SIGINT);
        return 3;
      },
      [](pid_t pid) { kill(pid, SIGINT); });
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(StopSignalTest, FirstStopEndsTheWaitWithItsCode) {
  const int status = InChild(
      [](int fd) -> int {
        StopSignal::Install(false);
        std::thread([] { StopSignal::Stop(7); }).join();
        StopSignal::Stop(8);
        Tell(fd);
        return StopSignal::Wait();
      },
      [](pid_t) {});
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(StopSignalTest, ProcessStopsWhenStandardInputEndsAtOnce) {
  for (const bool keep : {false, true}) {
    int input[2];
    ASSERT_EQ(pipe(input), 0);
    if (keep) Tell(input[1]);
    const int status = InChild(
        [&input](int fd) -> int {
          dup2(input[0], STDIN_FILENO);
          close(input[1]);
          StopSignal::Install(false);
          StopSignal::StopUnlessKept();
          Tell(fd);
          return StopSignal::Wait();
        },
        [&](pid_t pid) {
          close(input[1]);
          if (!keep) return;
          // Waits until the child has read its byte and has let go of its standard input.
          const std::string link = "/proc/" + std::to_string(pid) + "/fd/0";
          char target[64] = "";
          while (std::string(target).rfind("/dev/null", 0) != 0) {
            if (readlink(link.c_str(), target, sizeof(target) - 1) < 0) break;
          }
          kill(pid, SIGINT);
        });
    close(input[0]);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + (keep ? SIGINT : SIGTERM));
  }
}

TEST(StopSignalTest, SecondSignalEndsAStopThatHangs) {
  const int status = InChild(
      [](int fd) -> int {
        StopSignal::Install(false);
        kill(getpid(), SIGTERM);
        StopSignal::Wait();
        Tell(fd);
        for (;;) pause();
      },
      [](pid_t pid) { kill(pid, SIGTERM); });
  EXPECT_TRUE(WIFSIGNALED(status));
}

// Kills the parent of a process and expects that the process ends, even while it is `stopped`.
void ExpectEndWithParent(bool stopped) {
  // This process adopts the grandchild, so that it can read its exit code.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const int status = InChild(
      [stopped](int fd) -> int {
        const pid_t grandchild = fork();
        if (grandchild == 0) {
          alarm(20);
          StopSignal::Install(true);
          if (StopSignal::ParentHasEnded()) _exit(1);
          if (stopped) raise(SIGSTOP);
          Tell(fd);
          const int code = StopSignal::Wait();
          _exit(StopSignal::ParentHasEnded() ? code : 2);
        }
        if (stopped) {
          int state = 0;
          waitpid(grandchild, &state, WUNTRACED);
          if (!WIFSTOPPED(state)) return 1;
          Tell(fd);
        }
        for (;;) pause();
      },
      [](pid_t pid) { kill(pid, SIGKILL); });
  EXPECT_TRUE(WIFSIGNALED(status));
  int grandchild = 0;
  ASSERT_GT(waitpid(-1, &grandchild, 0), 0);
  ASSERT_TRUE(WIFEXITED(grandchild));
  EXPECT_EQ(WEXITSTATUS(grandchild), 128 + SIGTERM);
}

TEST(StopSignalTest, DeathOfTheParentEndsTheWait) { ExpectEndWithParent(false); }

TEST(StopSignalTest, DeathOfTheParentEndsAStoppedProcessToo) { ExpectEndWithParent(true); }

}  // namespace
}  // namespace sluice
