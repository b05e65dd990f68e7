#include "cli/cluster/background_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/screen/command_line.h"

namespace sluice::cli {
namespace {

// The background process; read by the signal handler, so lock-free.
std::atomic<pid_t> g_background{0};

void PassOn(int number) {
  const int error = errno;
  kill(g_background, number);
  errno = error;
}

// The signals with which a terminal or a supervisor ends a command.
constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP};

// A SIGHUP that the user has set to be ignored (nohup) stays ignored. A SIGINT that a shell ignores
// in its background jobs does not, as everywhere (StopSignal).
void PassSignalsOn() {
  for (const int number : kPassedOn) {
    struct sigaction action = {};
    const bool ignored = sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (ignored && number == SIGHUP) continue;
    action.sa_handler = &PassOn;
    sigaction(number, &action, nullptr);
  }
}

int Fail(const char* what) {
  std::fprintf(stderr, "sluice: %s: %s\n", what, std::strerror(errno));
  return kJobFailed;
}

// Returns the exit code that the process sends, or with which it ends.
int AwaitCode(int pipe, pid_t process) {
  // A process that dies before Detach closes its end without a byte. Its exit status is then the
  // answer.
  unsigned char code = 0;
  ssize_t n;
  while ((n = read(pipe, &code, 1)) < 0 && errno == EINTR) {
  }
  close(pipe);
  if (n == 1) return code;
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

BackgroundProcess::~BackgroundProcess() {
  if (command_ >= 0) close(command_);
}

std::optional<int> BackgroundProcess::Split() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Fail("cannot create a pipe");
  // Both processes would otherwise print what the buffer holds.
  std::cout.flush();
  // A signal that comes before the command passes signals on would end it alone.
  sigset_t passed_on, before;
  sigemptyset(&passed_on);
  for (const int number : kPassedOn) sigaddset(&passed_on, number);
  sigprocmask(SIG_BLOCK, &passed_on, &before);
  const pid_t command = getpid();
  const pid_t process = fork();
  if (process > 0) {
    g_background = process;
    PassSignalsOn();
  }
  const int error = errno;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  if (process < 0) return Fail("cannot start a process");
  if (process > 0) {
    // With this end open, the pipe would never end, and a process that dies would not be noticed.
    close(fds[1]);
    return AwaitCode(fds[0], process);
  }
  close(fds[0]);
  command_ = fds[1];
  // Ctrl-C in the terminal then reaches only the command, which passes it on.
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The command may have died before prctl took effect.
  if (getppid() != command) _exit(128 + SIGTERM);
  return std::nullopt;
}

absl::Status BackgroundProcess::Detach(int exit_code, const std::string& log_file) {
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (log < 0 || null < 0) {
    const absl::Status refused = absl::InvalidArgumentError(
        absl::StrCat("cannot write ", log_file, ": ", std::strerror(errno)));
    for (const int fd : {log, null}) {
      if (fd >= 0) close(fd);
    }
    return refused;
  }
  std::cout.flush();
  std::fflush(nullptr);
  // A reader of the command's output would otherwise wait for the end of this process.
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  close(null);
  close(log);
  // Before the byte below: the command ends as soon as it has read it, and this process must not
  // end with it.
  prctl(PR_SET_PDEATHSIG, 0);
  const auto code = static_cast<unsigned char>(exit_code);
  [[maybe_unused]] const ssize_t n = write(command_, &code, 1);  // it may have been killed
  close(command_);
  command_ = -1;
  return absl::OkStatus();
}

}  // namespace sluice::cli
