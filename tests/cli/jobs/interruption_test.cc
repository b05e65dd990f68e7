#include "cli/jobs/interruption.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>

#include "common/daemon/stop_signal.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

// Runs `body` in a child process, which owns the signals. Returns its wait status and what it has
// written to standard error.
std::pair<int, std::string> InChildProcess(const std::function<int()>& body) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
    dup2(fds[1], STDERR_FILENO);
    alarm(60);
    StopSignal::Install(false);
    _exit(body());
  }
  close(fds[1]);
  std::string said(4096, '\0');
  size_t size = 0;
  for (ssize_t n; size < said.size() && (n = read(fds[0], &said[size], said.size() - size)) > 0;)
    size += static_cast<size_t>(n);
  said.resize(size);
  close(fds[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return {status, said};
}

void AwaitSignal(const Interruption& interruption) {
  while (!interruption.came()) usleep(1000);
}

TEST(InterruptionTest, TheExitCodeIsThatOfTheJobUnlessASignalCameFirst) {
  for (const int number : {0, SIGINT, SIGTERM, SIGHUP}) {
    const auto [status, said] = InChildProcess([number = number] {
      Interruption interruption(absl::Seconds(1), /*live=*/false);
      if (number != 0) {
        kill(getpid(), number);
        AwaitSignal(interruption);
      }
      return interruption.End(7);
    });
    ASSERT_TRUE(WIFEXITED(status)) << said;
    EXPECT_EQ(WEXITSTATUS(status), number == 0 ? 7 : 128 + number);
  }
}

TEST(InterruptionTest, ASecondSignalEndsTheProcessAtOnceAndNamesTheNewestCheckpoint) {
  for (const char* const checkpoint : {"", "/out/checkpoints/step-7"}) {
    const auto [status, said] = InChildProcess([checkpoint = checkpoint] {
      Interruption interruption(absl::Seconds(30), /*live=*/false);
      interruption.SetCheckpoint(checkpoint);
      kill(getpid(), SIGINT);
      AwaitSignal(interruption);
      kill(getpid(), SIGINT);
      for (;;) pause();
      return 0;
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << status << said;
    EXPECT_EQ(WTERMSIG(status), SIGINT);
    EXPECT_NE(said.find("ended at once"), std::string::npos) << said;
    EXPECT_NE(said.find(*checkpoint ? checkpoint : "no checkpoint"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace sluice::cli
