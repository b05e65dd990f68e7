#include "common/daemon/stop_signal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace sluice {
namespace {

// SIGALRM ends a stop that takes longer than this after a signal, so that no process outlives its
// cluster.
constexpr unsigned kStopGraceSeconds = 20;

int g_signals = -1;                // signalfd; constant after Install
int g_stop = -1;                   // eventfd; constant after Install
std::atomic<int> g_exit_code{-1};  // the first Stop wins; the eventfd orders it before the load

std::atomic<int> g_received{0};  // the first signal
pid_t g_parent = 0;              // with die_with_parent; constant after Install

bool IsIgnored(int number) {
  struct sigaction action;
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  // A signal that was ignored at the start (nohup, trap '' INT, a background job of a script) stays
  // ignored: it is not blocked, because signalfd would report a blocked one.
  for (const int number : {SIGINT, SIGHUP}) {
    if (!IsIgnored(number)) sigaddset(&set, number);
  }
  return set;
}

bool HasTerminal() {
  const int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

int ExitCodeOfSignal() {
  signalfd_siginfo info = {};
  if (read(g_signals, &info, sizeof(info)) != sizeof(info)) return 128 + SIGTERM;
  // A second signal, or a stop that hangs, ends the process at once.
  signal(SIGTERM, SIG_DFL);
  sigset_t set = StopSignals();
  sigdelset(&set, SIGHUP);  // a closing terminal may send SIGHUP twice
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  alarm(kStopGraceSeconds);
  g_received = static_cast<int>(info.ssi_signo);
  return 128 + static_cast<int>(info.ssi_signo);
}

// Asks the kernel for SIGTERM and SIGCONT when the parent dies, so that a stopped process (SIGSTOP,
// Ctrl-Z) wakes up and ends too. Each thread may ask for one signal only, so a second thread asks
// for SIGCONT; it must keep running, because its request ends with it.
void AskForSignalsAtDeathOfParent() {
  const pid_t parent = g_parent = getppid();
  std::promise<void> asked;
  std::thread([&asked] {
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    asked.set_value();
    for (;;) pause();
  }).detach();
  asked.get_future().wait();
  // SIGTERM comes last: a SIGKILL that the parent asked for between fork and exec holds until here.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // If the parent died before or during these calls, the kernel will not send the signals.
  if (getppid() != parent) std::_Exit(128 + SIGTERM);
}

}  // namespace

void StopSignal::Install(bool die_with_parent) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file as large as it may be makes its write fail, and ends nothing
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (die_with_parent) AskForSignalsAtDeathOfParent();
  g_signals = signalfd(-1, &set, SFD_CLOEXEC);
  g_stop = eventfd(0, EFD_CLOEXEC);
}

void StopSignal::ReopenOnHangUp(std::function<void()> reopen) {
  sigset_t stop = StopSignals();
  // Asked now: when a terminal closes, its processes have lost it before SIGHUP arrives.
  if (sigismember(&stop, SIGHUP) != 1 || HasTerminal()) return;
  sigdelset(&stop, SIGHUP);
  signalfd(g_signals, &stop, 0);
  sigset_t hang_up;
  sigemptyset(&hang_up);
  sigaddset(&hang_up, SIGHUP);
  const int signals = signalfd(-1, &hang_up, SFD_CLOEXEC);
  if (signals < 0) return;
  std::thread([signals, reopen = std::move(reopen)] {
    signalfd_siginfo info = {};
    for (;;) {
      const ssize_t n = read(signals, &info, sizeof(info));
      if (n == sizeof(info)) reopen();
      if (n < 0 && errno != EINTR) return;
    }
  }).detach();
}

void StopSignal::StopUnlessKept() {
  std::thread([] {
    char byte;
    ssize_t n;
    while ((n = read(STDIN_FILENO, &byte, 1)) < 0 && errno == EINTR) {
    }
    if (n != 1) {
      kill(getpid(), SIGTERM);
      return;
    }
    // The first byte means that the process is kept. /dev/null replaces the pipe, so that the
    // process holds no end of it.
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0) return;
    dup2(null, STDIN_FILENO);
    close(null);
  }).detach();
}

void StopSignal::Stop(int exit_code) {
  int none = -1;
  g_exit_code.compare_exchange_strong(none, exit_code);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(g_stop, &one, sizeof(one));
}

bool StopSignal::ParentHasEnded() { return g_parent != 0 && getppid() != g_parent; }

int StopSignal::Received() { return g_received; }

bool StopSignal::WaitForSecond(const std::function<bool()>& done) {
  sigset_t set;
  sigemptyset(&set);
  if (!IsIgnored(SIGINT)) sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  constexpr timespec kPause = {0, 100'000'000};
  bool came = false;
  while (!came && !done()) came = sigtimedwait(&set, nullptr, &kPause) > 0;
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  return came;
}

void StopSignal::AllowMore(int seconds) {
  alarm(kStopGraceSeconds + static_cast<unsigned>(seconds));
}

bool StopSignal::IsWanted(int within_ms) {
  pollfd fds[2] = {{g_signals, POLLIN, 0}, {g_stop, POLLIN, 0}};
  return poll(fds, 2, within_ms) > 0;  // an interrupted wait is shorter
}

int StopSignal::Wait() {
  pollfd fds[2] = {{g_signals, POLLIN, 0}, {g_stop, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  if (fds[1].revents != 0) return g_exit_code.load();
  return ExitCodeOfSignal();
}

}  // namespace sluice
