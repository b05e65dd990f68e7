// SIGINT, SIGTERM and SIGHUP as something to wait for.
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
#include <future>
#include <thread>

#include "common/daemon/identity.h"

namespace sluice {
namespace {

// A stop that takes longer than this after a signal is cut short, so that no process outlives its
// cluster.
constexpr unsigned kStopGraceSeconds = 20;

int g_signals = -1;                // signalfd; constant after Install
int g_stop = -1;                   // eventfd; constant after Install
std::atomic<int> g_exit_code{-1};  // first Stop wins; release/acquire by the eventfd

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  // Ignored (nohup) it stays so; a blocked one would come nevertheless.
  struct sigaction hang_up;
  if (sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)
    sigaddset(&set, SIGHUP);
  return set;
}

int ExitCodeOfSignal() {
  signalfd_siginfo info = {};
  if (read(g_signals, &info, sizeof(info)) != sizeof(info)) return 128 + SIGTERM;
  // A second signal, or a stop that hangs, ends the process at once.
  signal(SIGINT, SIG_DFL);  // a shell's background job starts with it ignored
  signal(SIGTERM, SIG_DFL);
  sigset_t set = StopSignals();
  sigdelset(&set, SIGHUP);  // a terminal that closes may send it twice
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  alarm(kStopGraceSeconds);
  return 128 + static_cast<int>(info.ssi_signo);
}

// The kernel sends SIGTERM and SIGCONT when the parent dies, so that a process that is stopped
// (SIGSTOP, Ctrl-Z) wakes up and ends too. Every thread of a process may ask for one signal.
void AskForSignalsAtDeathOfParent() {
  const pid_t parent = getppid();
  std::promise<void> asked;
  std::thread([&asked] {
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    asked.set_value();
    for (;;) pause();
  }).detach();
  asked.get_future().wait();
  // Last: until here it is SIGKILL, if the parent has set that between fork and exec.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The parent may have died around the calls: then nobody will send the signals.
  if (getppid() != parent) std::_Exit(128 + SIGTERM);
}

}  // namespace

void StopSignal::Install(bool die_with_parent) {
  signal(SIGPIPE, SIG_IGN);
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (die_with_parent) AskForSignalsAtDeathOfParent();
  g_signals = signalfd(-1, &set, SFD_CLOEXEC);
  g_stop = eventfd(0, EFD_CLOEXEC);
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

int StopSignal::Wait() {
  pollfd fds[2] = {{g_signals, POLLIN, 0}, {g_stop, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  if (fds[1].revents != 0) return g_exit_code.load();
  return ExitCodeOfSignal();
}

}  // namespace sluice
