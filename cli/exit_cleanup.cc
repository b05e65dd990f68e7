#include "cli/exit_cleanup.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace sluice::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

ExitCleanup* g_cleanup = nullptr;  // changes only while the handlers are not set

void OnSignal(int number) {
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

ExitCleanup::ExitCleanup(std::vector<std::string> files, std::string folder, size_t most_children)
    : files_(std::move(files)), folder_(std::move(folder)), children_(most_children) {
  Handle(SIG_DFL);
  g_cleanup = this;
  Handle(&OnSignal);
}

ExitCleanup::~ExitCleanup() {
  Handle(SIG_DFL);
  g_cleanup = nullptr;
  Remove();
}

void ExitCleanup::Remove() {
  for (const auto& child : children_) {
    if (child > 0) kill(child, SIGKILL);
  }
  // The children must be gone before their files are removed: they could create them again.
  for (const auto& child : children_) {
    if (child > 0) waitpid(child, nullptr, 0);
  }
  for (const std::string& file : files_) unlink(file.c_str());
  if (!folder_.empty()) rmdir(folder_.c_str());
}

}  // namespace sluice::cli
