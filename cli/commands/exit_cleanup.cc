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
    // A signal that the parent process made this one ignore stays ignored, but for SIGPIPE:
    // StandardOutput has made the process ignore that, and these commands end of it.
    if (number != SIGPIPE && sigaction(number, nullptr, &action) == 0 &&
        action.sa_handler == SIG_IGN)
      continue;
    action = {};
    action.sa_handler = handler;
    // Blocks the other signals, so that only one handler runs at a time.
    for (const int other : kSignals) sigaddset(&action.sa_mask, other);
    sigaction(number, &action, nullptr);
  }
}

}  // namespace

ExitCleanup::ExitCleanup(std::vector<std::string> files, std::vector<std::string> outputs,
                         std::string folder)
    : files_(std::move(files)),
      outputs_(std::move(outputs)),
      folder_(std::move(folder)),
      made_(std::make_unique<std::atomic<bool>[]>(outputs_.size())) {
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
  if (kept_) return;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (made_[i]) unlink(outputs_[i].c_str());
  }
  if (!folder_.empty()) rmdir(folder_.c_str());
}

}  // namespace sluice::cli
