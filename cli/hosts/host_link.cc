#include "cli/hosts/host_link.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/cluster/child_process.h"
#include "cli/hosts/guard_message.h"
#include "cli/hosts/own_host.h"
#include "cli/jobs/resume_hint.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"

namespace sluice::cli {
namespace {

constexpr int kMoveMs = 50;
constexpr absl::Duration kBeatPause = absl::Seconds(1);
constexpr size_t kMostErrors = 16 << 10;
// Lines that nobody has taken yet, in bytes. More stay in the pipe, and the guard keeps them.
constexpr size_t kMostWaiting = 8 << 20;

struct Pipe {
  int read_end = -1, write_end = -1;
};

bool MakePipe(Pipe* made) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  made->read_end = ends[0], made->write_end = ends[1];
  return true;
}

class ProcessLink final : public HostLink {
 public:
  ProcessLink(pid_t pid, int in, int out, int errors, std::string beat)
      : pid_(pid), in_(in), out_(out), errors_(errors), beat_(std::move(beat)) {
    for (const int fd : {in, out, errors}) fcntl(fd, F_SETFL, O_NONBLOCK);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mover_ = std::thread([this] { Move(); });
  }
  ~ProcessLink() override {
    {
      MutexLock lock(&mutex_);
      over_ = true;
    }
    Wake();
    mover_.join();
    for (const int fd : {in_, out_, errors_, wake_}) {
      if (fd >= 0) close(fd);
    }
    if (reaped_) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  void Send(absl::string_view bytes) override {
    {
      MutexLock lock(&mutex_);
      unsent_.append(bytes.data(), bytes.size());
    }
    Wake();
  }
  void EndInput() override {
    {
      MutexLock lock(&mutex_);
      end_input_ = true;
    }
    Wake();
  }
  std::vector<std::string> Lines() override {
    MutexLock lock(&mutex_);
    waiting_bytes_ = 0;
    return std::exchange(lines_, {});
  }
  std::optional<LinkEnd> Ended() override {
    MutexLock lock(&mutex_);
    if (!drained_ || !lines_.empty()) return std::nullopt;
    int status = 0;
    if (!reaped_ && waitpid(pid_, &status, WNOHANG) == pid_) {
      reaped_ = true;
      end_ = {status, text_of_errors_};
    }
    if (!reaped_) return std::nullopt;
    return end_;
  }

 private:
  // The mover must not sleep out its pause: a launch asks its hosts one question after the other.
  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof(one));
  }
  void Move() {
    absl::Time next_beat = Clock::Real()->Now() + kBeatPause;
    for (;;) {
      bool wants_room, wants_lines;
      {
        MutexLock lock(&mutex_);
        if (over_) return;
        const absl::Time now = Clock::Real()->Now();
        if (!beat_.empty() && now >= next_beat) {
          next_beat = now + kBeatPause;
          // Behind a file that is being sent, beats would only gather.
          if (unsent_.empty() && !end_input_) unsent_ = beat_;
        }
        wants_room = in_ >= 0 && !unsent_.empty();
        wants_lines = waiting_bytes_ < kMostWaiting;
        if (in_ >= 0 && unsent_.empty() && end_input_) {
          close(in_);
          in_ = -1;
        }
      }
      pollfd files[] = {{wants_room ? in_ : -1, POLLOUT, 0},
                        {wants_lines ? out_ : -1, POLLIN, 0},
                        {errors_, POLLIN, 0},
                        {wake_, POLLIN, 0}};
      if (out_ < 0 && errors_ < 0) {
        MutexLock lock(&mutex_);
        drained_ = true;
      }
      (void)poll(files, 4, kMoveMs);
      uint64_t woken;
      if (files[3].revents != 0) (void)!read(wake_, &woken, sizeof(woken));
      if (files[0].revents != 0) WriteSome();
      if (files[1].revents != 0) {
        ReadSome(&out_, [this](absl::string_view bytes) {
          for (std::string& line : cutter_.Take(bytes)) {
            waiting_bytes_ += line.size();
            lines_.push_back(std::move(line));
          }
        });
      }
      if (files[2].revents != 0) {
        ReadSome(&errors_, [this](absl::string_view bytes) {
          text_of_errors_.append(bytes.data(), bytes.size());
          if (text_of_errors_.size() > kMostErrors)
            text_of_errors_.erase(0, text_of_errors_.size() - kMostErrors);
        });
      }
    }
  }

  void WriteSome() {
    MutexLock lock(&mutex_);
    const ssize_t n = write(in_, unsent_.data() + sent_, unsent_.size() - sent_);
    if (n > 0) {
      sent_ += static_cast<size_t>(n);
      if (sent_ < unsent_.size()) return;
      unsent_.clear();
      sent_ = 0;
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      close(in_);
      in_ = -1;
      unsent_.clear();
      sent_ = 0;
    }
  }

  // `take` runs with the lock.
  template <typename Take>
  void ReadSome(int* fd, const Take& take) {
    char bytes[64 << 10];
    const ssize_t n = read(*fd, bytes, sizeof(bytes));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    MutexLock lock(&mutex_);
    if (n > 0) return take(absl::string_view(bytes, static_cast<size_t>(n)));
    close(*fd);
    *fd = -1;
  }

  const pid_t pid_;
  int in_, out_, errors_;  // of the mover; -1: closed
  int wake_ = -1;          // an eventfd; -1: the mover looks at every pause only
  const std::string beat_;
  LineCutter cutter_;  // of the mover
  Mutex mutex_;
  std::string unsent_ ABSL_GUARDED_BY(mutex_);
  size_t sent_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of it
  std::vector<std::string> lines_;           // guarded by mutex_
  size_t waiting_bytes_ = 0;                 // guarded by mutex_
  std::string text_of_errors_;               // guarded by mutex_
  bool end_input_ ABSL_GUARDED_BY(mutex_) = false;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;  // both outputs have ended
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool reaped_ = false;  // of the owner's thread
  LinkEnd end_;
  std::thread mover_;
};

}  // namespace

std::vector<std::string> SshCommandLine(const HostSpec& host, const std::string& command) {
  std::vector<std::string> line = {"ssh", "-T", "-x", "-a"};
  // A connection of its own: one that others share would not end with this process. Keepalives tell
  // of a cut network before the guard gives up. Ports to forward or a command that ~/.ssh/config
  // names for people at a terminal would make this connection fail.
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=3", "ServerAliveCountMax=3",
        "ControlPath=none", "RemoteCommand=none", "ClearAllForwardings=yes"}) {
    line.push_back("-o");
    line.push_back(option);
  }
  if (!host.user.empty()) {
    line.push_back("-l");
    line.push_back(host.user);
  }
  line.push_back("--");
  line.push_back(host.name);
  // The user's login shell may be another one.
  line.push_back(absl::StrCat("exec sh -c ", ShellWord(command)));
  return line;
}

absl::StatusOr<std::unique_ptr<HostLink>> SshLinks::Open(const HostSpec& host,
                                                         const std::string& command,
                                                         const std::string& beat) {
  std::vector<std::string> words = host.user.empty() && IsOwnHost(host.name)
                                       ? std::vector<std::string>{"sh", "-c", command}
                                       : SshCommandLine(host, command);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Pipe in, out, errors;
  pid_t pid = -1;
  const pid_t parent = getpid();
  if (MakePipe(&in) && MakePipe(&out) && MakePipe(&errors)) pid = fork();
  if (pid == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    // Ctrl-C is for the launcher, which ends the hosts in order.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    dup2(in.read_end, STDIN_FILENO);
    dup2(out.write_end, STDOUT_FILENO);
    dup2(errors.write_end, STDERR_FILENO);
    execvp(argv[0], argv.data());
    const char why[] = "cannot run ssh; is it installed (openssh-client)?\n";
    (void)!write(STDERR_FILENO, why, sizeof(why) - 1);
    _exit(127);
  }
  const int reason = errno;
  for (const int fd : {in.read_end, out.write_end, errors.write_end}) {
    if (fd >= 0) close(fd);
  }
  if (pid > 0)
    return std::make_unique<ProcessLink>(pid, in.write_end, out.read_end, errors.read_end, beat);
  for (const int fd : {in.write_end, out.read_end, errors.read_end}) {
    if (fd >= 0) close(fd);
  }
  return absl::InternalError(absl::StrCat("cannot start ssh: ", std::strerror(reason)));
}

std::string ExplainLinkEnd(const HostSpec& host, const LinkEnd& end) {
  std::string last;  // the last line that says something
  std::string library;
  for (const absl::string_view line : absl::StrSplit(end.errors, '\n')) {
    const std::string text = PrintableLine(std::string(absl::StripAsciiWhitespace(line)));
    if (text.empty()) continue;
    last = text;
    if (absl::StrContains(text, "error while loading shared libraries")) library = text;
  }
  const auto has = [&](absl::string_view text) { return absl::StrContains(end.errors, text); };
  const std::string says = last.empty() ? "" : absl::StrCat(" (", last, ")");
  const std::string by_hand = absl::StrCat(
      "ssh ", host.user.empty() ? "" : absl::StrCat(host.user, "@"), host.name, " true");
  if (!library.empty()) {
    return absl::StrCat("lacks a library of Sluice (", library,
                        "); install it there, or send the programs with --ship");
  }
  if (has("Permission denied")) {
    return absl::StrCat("refuses the key", says, "; `", by_hand,
                        "` must work without a password: add your key with ssh-copy-id, or name it "
                        "in ~/.ssh/config");
  }
  if (has("Host key verification failed")) {
    return absl::StrCat("is not in ~/.ssh/known_hosts, or has another key there", says, "; run `",
                        by_hand, "` once and check the key");
  }
  for (const char* down :
       {"Connection refused", "Connection timed out", "No route to host", "Operation timed out",
        "Network is unreachable", "Connection reset", "Connection closed", "timed out during"}) {
    if (has(down)) {
      return absl::StrCat("cannot be reached", says,
                          "; it may be down, or no ssh server runs there");
    }
  }
  if (has("Could not resolve hostname"))
    return absl::StrCat("is not known", says, "; correct its name, or give its address");
  if (has("No space left on device")) return absl::StrCat("has a full disk", says);
  if (WIFEXITED(end.wait_status) && WEXITSTATUS(end.wait_status) == 127) {
    return absl::StrCat(
        "has no sluice", says,
        "; install it in the same folder as here or in PATH, or send it with --ship");
  }
  return absl::StrCat("has ended the connection: ssh ", DescribeExit(end.wait_status), says);
}

}  // namespace sluice::cli
