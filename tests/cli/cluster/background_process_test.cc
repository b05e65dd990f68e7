#include "cli/cluster/background_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

class BackgroundProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe(said_), 0); }
  void TearDown() override {
    close(said_[0]);
    std::remove(log_.c_str());
  }
  // Starts a command whose background process runs `body`, with a pipe to this test.
  pid_t Start(const std::function<int(BackgroundProcess*)>& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      BackgroundProcess process;
      if (const std::optional<int> code = process.Split()) {
        close(said_[1]);
        _exit(*code);
      }
      _exit(body(&process));
    }
    close(said_[1]);
    return pid;
  }
  static int ExitCode(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void Say(char word) { ASSERT_EQ(write(said_[1], &word, 1), 1); }
  // The next byte from the background process; 0 when it has ended.
  char Heard() {
    char word = 0;
    return read(said_[0], &word, 1) == 1 ? word : 0;
  }

  int said_[2];
  const std::string log_ = absl::StrCat(testing::TempDir(), "/background_process.", getpid());
};

TEST_F(BackgroundProcessTest, TheCommandEndsAndTheProcessStays) {
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t command = Start([&](BackgroundProcess* process) {
    close(go[1]);
    if (!process->Detach(7, log_).ok()) return 1;
    std::cout << "a line" << std::endl;
    char word;
    [[maybe_unused]] const ssize_t n = read(go[0], &word, 1);  // until the test closes its end
    Say('s');
    return 0;
  });
  EXPECT_EQ(ExitCode(command), 7);
  close(go[0]);
  close(go[1]);
  EXPECT_EQ(Heard(), 's');
  EXPECT_EQ(Heard(), 0);
  std::ifstream log(log_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(log), {}), "a line\n");
}

TEST_F(BackgroundProcessTest, AProcessThatEndsEarlyGivesTheCommandItsCode) {
  EXPECT_EQ(ExitCode(Start([](BackgroundProcess*) { return 3; })), 3);
}

// A shell starts its background jobs with SIGINT ignored.
TEST_F(BackgroundProcessTest, SignalsArePassedOn) {
  const auto before = signal(SIGINT, SIG_IGN);
  const pid_t command = Start([this](BackgroundProcess*) {
    signal(SIGINT, [](int) { _exit(42); });
    Say('r');
    for (;;) pause();
    return 0;
  });
  signal(SIGINT, before);
  ASSERT_EQ(Heard(), 'r');
  kill(command, SIGINT);
  EXPECT_EQ(ExitCode(command), 42);
}

TEST_F(BackgroundProcessTest, AKilledCommandEndsTheProcess) {
  const pid_t command = Start([this](BackgroundProcess*) {
    Say('r');
    for (;;) pause();
    return 0;
  });
  ASSERT_EQ(Heard(), 'r');
  kill(command, SIGKILL);
  EXPECT_EQ(ExitCode(command), -SIGKILL);
  EXPECT_EQ(Heard(), 0);
}

TEST_F(BackgroundProcessTest, ALogThatCannotBeWrittenIsRefused) {
  const pid_t command = Start([](BackgroundProcess* process) {
    return absl::IsInvalidArgument(process->Detach(0, "/nowhere/log")) ? 5 : 6;
  });
  EXPECT_EQ(ExitCode(command), 5);
}

}  // namespace
}  // namespace sluice::cli
