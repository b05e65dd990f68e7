#include "cli/commands/exit_cleanup.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

namespace sluice::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

const ExitCleanup* g_cleanup = nullptr;  // changes only while the handlers are not set

void OnSignal(int number) {
  // Only async-signal-safe calls are allowed here.
  if (g_cleanup != nullptr) g_cleanup->Remove();
  _exit(128 + number);
}

void Handle(void (*handler)(int)) {
  for (const int number : kSignals) {
    struct sigaction action = {};
    action.sa_handler = handler;
    // Blocks the other signals, so that only one handler runs at a time.
    for (const int other : kSignals) sigaddset(&action.sa_mask, other);
    sigaction(number, &action, nullptr);
  }
}

}  // namespace

ExitCleanup::ExitCleanup(std::vector<std::string> files) : files_(std::move(files)) {
  // The handler must not find a pointer that is being set. A signal in between ends the process
  // without leaving a file: none has been made yet.
  Handle(SIG_DFL);
  g_cleanup = this;
  Handle(&OnSignal);
}

ExitCleanup::~ExitCleanup() {
  // From here on no handler may use this instance, whose fields are about to go.
  Handle(SIG_DFL);
  g_cleanup = nullptr;
  Remove();
}

void ExitCleanup::Remove() const {
  // A finished file has got another name, so only unfinished ones are found here.
  for (const std::string& file : files_) unlink(file.c_str());
}

}  // namespace sluice::cli
