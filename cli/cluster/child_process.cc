#include "cli/cluster/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {
namespace {

constexpr int kExecFailed = 127;

// This process's environment without its SLUICE_* variables, and with `added`.
std::vector<std::string> EnvironmentOfChild(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  const auto replaced = [&](absl::string_view entry) {
    const absl::string_view name = entry.substr(0, entry.find('=') + 1);
    return std::any_of(added.begin(), added.end(),
                       [&](const std::string& one) { return absl::StartsWith(one, name); });
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, "SLUICE_") && !replaced(*entry)) all.push_back(*entry);
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& s : *strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child between fork and exec, where only async-signal-safe calls are allowed.
// `output`: -1 leaves standard output and error as they are.
[[noreturn]] void Exec(pid_t parent, const ChildOptions& options, int output, char* const* argv,
                       char* const* environment) {
  // Blocked and ignored signals survive exec. The parent blocks the signals that it waits for, and
  // the daemon must receive them.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (options.detached) {
    setsid();
    // Without a terminal SIGHUP asks for a new log, also when nohup has started this process.
    signal(SIGHUP, SIG_DFL);
  } else {
    // The child gets its own process group: Ctrl-C in the terminal then reaches only the launcher,
    // which stops the processes in order.
    if (!options.interactive) setpgid(0, 0);
    // A daemon replaces SIGKILL by SIGTERM and SIGCONT once it can stop in order (StopSignal).
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before prctl took effect.
    if (getppid() != parent) _exit(kExecFailed);
  }
  // A daemon must not read what the user types into the terminal.
  int input = options.input;
  if (input < 0 && !options.interactive) input = open("/dev/null", O_RDONLY);
  if (input >= 0) dup2(input, STDIN_FILENO);
  if (output >= 0) {
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  }
  execve(argv[0], argv, environment);
  _exit(kExecFailed);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(ChildOptions options) {
  // Checked here, because a failed exec could only report an exit code.
  if (access(options.argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot start ", options.argv[0], ": ", std::strerror(errno),
                     "; it must be in the folder of the sluice binary (./dev build makes both)"));
  }
  // Appends: the log of a process that is started again keeps what it wrote before it died.
  const bool logs = options.output < 0;
  const int log =
      logs ? open(options.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
  if (logs && log < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", options.log_file, ": ",
                                                   std::strerror(errno),
                                                   "; give a writable --log_dir"));
  }
  struct stat before = {};
  if (logs) fstat(log, &before);
  // Made before fork: the child of a process with threads must not allocate memory.
  std::vector<std::string> environment = EnvironmentOfChild(options.environment);
  const std::vector<char*> environment_pointers = Pointers(&environment);
  const std::vector<char*> arguments = Pointers(&options.argv);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    const int output = logs ? log : options.output;
    Exec(parent, options, options.shows_output ? -1 : output, arguments.data(),
         environment_pointers.data());
  }
  if (logs) close(log);
  if (pid < 0) {
    return absl::InternalError(
        absl::StrCat("cannot start ", options.name, ": ", std::strerror(errno)));
  }
  ChildProcess child(std::move(options));
  child.pid_ = pid;
  child.log_bytes_ = before.st_size;
  return child;
}

bool ChildProcess::HasLogged() const {
  struct stat now = {};
  // A full log was renamed, and its place is taken by a new one.
  return stat(options_.log_file.c_str(), &now) == 0 && now.st_size != log_bytes_;
}

std::optional<int> ChildProcess::Poll() {
  // The status can be read only once, so it is kept. Until then the pid cannot belong to another
  // process.
  int status;
  if (!status_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

void ChildProcess::Signal(int signal) {
  // A reaped pid may belong to another process by now.
  if (!Poll().has_value()) kill(pid_, signal);
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status));
}

absl::StatusOr<std::string> FindExecutable(const std::string& name) {
  const char* const path = std::getenv("PATH");
  if (absl::StrContains(name, '/')) {
    if (access(name.c_str(), X_OK) == 0) return name;
    return absl::NotFoundError(absl::StrCat("there is no program ", name));
  }
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string file = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return absl::NotFoundError(absl::StrCat("there is no program ", name, " in PATH; give its path"));
}

absl::StatusOr<std::string> ExecutableFolder() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    return absl::InternalError(absl::StrCat("cannot read /proc/self/exe: ", error.message()));
  return path.parent_path().string();
}

}  // namespace sluice::cli
