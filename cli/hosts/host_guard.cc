#include "cli/hosts/host_guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/cluster/child_process.h"
#include "cli/cluster/log_files.h"
#include "cli/hosts/guard_message.h"
#include "cli/hosts/guard_watch.h"
#include "cli/hosts/own_folder.h"
#include "cli/hosts/own_host.h"
#include "cli/jobs/resume_hint.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/daemon/process_info.h"
#include "common/daemon/stop_signal.h"
#include "common/shared_memory/file_descriptor.h"

namespace sluice::cli {
namespace {

constexpr int kLookMs = 100;
constexpr absl::Duration kBeat = absl::Seconds(1);
// How long the launcher has for taking the last lines.
constexpr absl::Duration kLastWords = absl::Seconds(2);
// Logs are not read while so much waits to be sent: ends and answers must not wait behind them.
constexpr size_t kMostUnsent = 1 << 20;
constexpr size_t kMostRead = 4096;
// While the guard ends it reads on, so that no program waits for room in its pipe until it is
// killed. Lines beyond this are dropped: the launcher may be gone.
constexpr size_t kMostUnsentAtEnd = 8 << 20;
constexpr size_t kMostLine = 1 << 20;
constexpr size_t kMostAnswer = 64 << 10;
// An answer may be there before the process that gave it is seen to have ended.
constexpr int kLookAtAnswerMs = 2;

// A port at which nothing listens on any address; 0: none.
uint32_t FreePort(uint32_t from, uint32_t to, const std::set<uint32_t>& taken) {
  const auto free = [](uint32_t port) -> uint32_t {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const bool bound = bind(fd, any, size) == 0 && getsockname(fd, any, &size) == 0;
    close(fd);
    return bound ? ntohs(address.sin_port) : 0;
  };
  if (from == 0) {
    for (int tries = 0; tries < 100; ++tries) {
      const uint32_t port = free(0);
      if (taken.count(port) == 0) return port;
    }
    return 0;
  }
  for (uint32_t port = from; port <= to; ++port) {
    if (taken.count(port) == 0 && free(port) != 0) return port;
  }
  return 0;
}

// Reads the output of a child from a pipe. A pipe holds little, so a child waits when it prints
// faster than the launcher reads, and the disk of this host does not fill.
class OutputPipe {
 public:
  static absl::StatusOr<OutputPipe> Make() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      return absl::InternalError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
    OutputPipe pipe;
    pipe.read_end_ = FileDescriptor(ends[0]);
    pipe.write_end_ = FileDescriptor(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return pipe;
  }
  // For the child. CloseWriteEnd once it has it: without that, the pipe never ends.
  int write_end() const { return write_end_.get(); }
  void CloseWriteEnd() { write_end_ = FileDescriptor(); }
  // To be polled; -1 once nobody can write to it any more.
  int fd() const { return read_end_.get(); }

  // Returns what has come, and reads little more than `most` bytes.
  std::vector<std::string> Lines(size_t most) {
    std::vector<std::string> lines;
    std::vector<char> bytes(64 << 10);
    for (size_t done = 0; fd() >= 0 && done < most;) {
      const ssize_t n = read(fd(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) {
        read_end_ = FileDescriptor();
        break;
      }
      done += static_cast<size_t>(n);
      for (std::string& line : cutter_.Take({bytes.data(), static_cast<size_t>(n)}))
        lines.push_back(std::move(line));
    }
    return lines;
  }
  // Returns all that a child which has ended wrote, and closes the pipe: a process that the child
  // has left behind could write into it for ever.
  std::vector<std::string> Rest() {
    const int holds = fd() >= 0 ? fcntl(fd(), F_GETPIPE_SZ) : 0;
    std::vector<std::string> lines = Lines(static_cast<size_t>(std::max(holds, 1)));
    if (std::string last = cutter_.TakeBegun(); !last.empty()) lines.push_back(std::move(last));
    read_end_ = FileDescriptor();
    return lines;
  }

 private:
  OutputPipe() = default;
  FileDescriptor read_end_, write_end_;
  LineCutter cutter_{kMostLine};
};

class HostGuard {
 public:
  HostGuard(int in, int out, absl::Duration patience)
      : in_(in), out_(out), patience_(patience), watch_(Clock::Real()->Now()) {}
  absl::Status Run();

 private:
  struct Daemon {
    std::string id;
    ChildProcess process;
    LogReader log;
    uint32_t port = 0;
    std::optional<OutputPipe> output;  // of a program
    bool shown = false;                // its output is for the terminal, and not for the log
    bool told = false;
  };
  // A question that a child answers. It may take long: a program may lie on a slow disk.
  struct Inquiry {
    uint64_t tag;
    std::string verb;
    ChildProcess process;
    OutputPipe output;
    absl::Time deadline;
    std::string text;  // the last kMostAnswer bytes of what it has printed
  };
  using Fields = std::vector<std::string>;

  absl::Status MakeFolder();
  absl::Status SayHello();
  void Read();
  // Writes what the launcher takes now.
  void Flush();
  // The same at the end, when the launcher gets some time.
  void FlushAll();
  void Handle(const GuardMessage& request);
  absl::StatusOr<Fields> Do(const GuardMessage& request);
  absl::StatusOr<Fields> StartDaemon(const Fields& fields);
  absl::Status AskVersion(uint64_t tag, const std::string& name);
  absl::Status AskPython(uint64_t tag, const std::string& interpreter);
  // Starts the child whose output answers `tag`.
  absl::Status Inquire(uint64_t tag, const std::string& verb, ChildOptions child);
  // Sends the answers that have come.
  void AnswerInquiries(absl::Time now);
  absl::StatusOr<Fields> AnswerOf(const Inquiry& inquiry, int wait_status) const;
  // Waits until something has come, for a look at the most.
  void Wait();
  absl::StatusOr<Fields> ReservePort(const Fields& fields);
  absl::StatusOr<Fields> RunProgram(const Fields& fields);
  // Starts the process, whose log is read from now on.
  absl::StatusOr<pid_t> Start(const std::string& id, const std::string& log, uint32_t port,
                              std::optional<OutputPipe> output, ChildOptions child);
  // The variable with which Python finds the package beside the programs; empty: it is installed.
  std::string PackagePath() const;
  absl::Status WriteOwnFile(const std::string& name, const std::string& mode,
                            const std::string& content);
  void Send(GuardMessage message) { unsent_ += Encode(message); }
  // Sends the new lines of the logs, and the ends of daemons.
  void Report();
  void SendLog(Daemon* daemon, bool has_ended);
  bool DaemonsLeft();
  void SignalAll(int number);

  const int in_, out_;
  const absl::Duration patience_;  // with inquiries
  GuardWatch watch_;
  // Bound and unused: the system gives its port to no one by chance, yet a program may listen
  // there.
  FileDescriptor reserved_;
  uint32_t reserved_port_ = 0;
  LineCutter lines_;
  std::string unsent_;
  std::unique_ptr<OwnFolder> own_folder_;
  std::string folder_, bin_;
  std::vector<Daemon> daemons_;
  std::vector<Inquiry> inquiries_;
};

absl::Status HostGuard::MakeFolder() {
  SLUICE_ASSIGN_OR_RETURN(own_folder_, OwnFolder::Make("guard"));
  folder_ = own_folder_->path();
  std::error_code error;
  std::filesystem::create_directories(folder_ + "/log", error);
  if (error)
    return absl::InternalError(absl::StrCat("cannot write ", folder_, ": ", error.message()));
  return absl::OkStatus();
}

absl::Status HostGuard::SayHello() {
  SLUICE_ASSIGN_OR_RETURN(bin_, ExecutableFolder());
  struct statvfs disk = {};
  const uint64_t free = statvfs(folder_.c_str(), &disk) == 0
                            ? static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize
                            : 0;
  Send({0,
        "hello",
        {SluiceVersion(), absl::StrCat(absl::ToUnixMicros(Clock::Real()->WallNow())), folder_, bin_,
         absl::StrCat(std::max(1U, std::thread::hardware_concurrency())), ProcessSpace(),
         absl::StrCat(free)}});
  return absl::OkStatus();
}

absl::Status HostGuard::Run() {
  // A launcher that does not read must not stop the watch over its beats.
  fcntl(out_, F_SETFL, fcntl(out_, F_GETFL) | O_NONBLOCK);
  fcntl(in_, F_SETFL, fcntl(in_, F_GETFL) | O_NONBLOCK);
  SLUICE_RETURN_IF_ERROR(MakeFolder());
  SLUICE_RETURN_IF_ERROR(SayHello());
  absl::Time next_beat = Clock::Real()->Now() + kBeat;
  for (;;) {
    Wait();
    if (StopSignal::IsWanted(0)) watch_.MustEnd("a signal");
    Report();
    const absl::Time now = Clock::Real()->Now();
    AnswerInquiries(now);
    if (now >= next_beat) {
      next_beat = now + kBeat;
      if (unsent_.size() < kMostUnsent) Send({0, "beat", {}});
    }
    Flush();
    switch (watch_.Step(now, DaemonsLeft())) {
      case GuardWatch::Action::kNone:
        break;
      case GuardWatch::Action::kTerminate:
        SignalAll(SIGTERM);
        break;
      case GuardWatch::Action::kKill:
        SignalAll(SIGKILL);
        break;
      case GuardWatch::Action::kLeave:
        Report();
        FlushAll();
        return absl::OkStatus();
    }
  }
}

void HostGuard::Wait() {
  // Once the input has ended, it would be ready at every look.
  std::vector<pollfd> files = {{watch_.ending() ? -1 : in_, POLLIN, 0},
                               {out_, static_cast<short>(unsent_.empty() ? 0 : POLLOUT), 0}};
  const bool takes_output = unsent_.size() < kMostUnsent || watch_.ending();
  for (const Daemon& daemon : daemons_) {
    if (takes_output && daemon.output.has_value())
      files.push_back({daemon.output->fd(), POLLIN, 0});
  }
  int look_ms = kLookMs;
  for (const Inquiry& inquiry : inquiries_) {
    files.push_back({inquiry.output.fd(), POLLIN, 0});
    if (inquiry.output.fd() < 0) look_ms = kLookAtAnswerMs;
  }
  (void)poll(files.data(), files.size(), look_ms);
  if (files[0].revents != 0) Read();
}

void HostGuard::FlushAll() {
  const absl::Time deadline = Clock::Real()->Now() + kLastWords;
  for (Flush(); !unsent_.empty() && Clock::Real()->Now() < deadline; Flush()) {
    pollfd file = {out_, POLLOUT, 0};
    (void)poll(&file, 1, kLookMs);
  }
}

void HostGuard::Read() {
  std::string bytes(64 << 10, '\0');
  for (;;) {
    const ssize_t n = read(in_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      watch_.MustEnd("the launcher has gone");
      return;
    }
    watch_.Heard(Clock::Real()->Now());
    for (const std::string& line :
         lines_.Take(absl::string_view(bytes.data(), static_cast<size_t>(n)))) {
      const auto message = ParseGuardMessage(line);
      if (message.ok()) Handle(*message);
    }
  }
}

void HostGuard::Flush() {
  while (!unsent_.empty()) {
    const ssize_t n = write(out_, unsent_.data(), unsent_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      unsent_.clear();
      watch_.MustEnd("the launcher has gone");
      return;
    }
    unsent_.erase(0, static_cast<size_t>(n));
  }
}

void HostGuard::Handle(const GuardMessage& request) {
  if (request.verb == "beat") return;
  if (request.verb == "end") return watch_.MustEnd("the launcher has said so");
  absl::StatusOr<Fields> answer;
  if ((request.verb == "program" || request.verb == "python") && request.fields.size() == 1) {
    const auto ask = request.verb == "program" ? &HostGuard::AskVersion : &HostGuard::AskPython;
    const absl::Status asked = (this->*ask)(request.tag, request.fields[0]);
    if (asked.ok()) return;  // the answer comes later
    answer = asked;
  } else {
    answer = Do(request);
  }
  if (request.tag == 0) return;
  if (answer.ok()) {
    Send({request.tag, "ok", *std::move(answer)});
  } else {
    Send({request.tag, "error", {std::string(answer.status().message())}});
  }
}

absl::StatusOr<HostGuard::Fields> HostGuard::Do(const GuardMessage& request) {
  Env* const env = Env::Real();
  const Fields& fields = request.fields;
  const std::string path = fields.empty() ? "" : fields[0];
  if (request.verb == "cd") {
    std::error_code error;
    std::filesystem::current_path(path, error);
    if (error) return absl::NotFoundError(error.message());
    return Fields();
  }
  if (request.verb == "size") {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t bytes, env->FileSize(path));
    // A file that this user may not read has a size, too.
    if (access(path.c_str(), R_OK) != 0) return absl::NotFoundError(std::strerror(errno));
    return Fields{absl::StrCat(bytes)};
  }
  if (request.verb == "read") {
    SLUICE_ASSIGN_OR_RETURN(std::string content, env->ReadRange(path, 0, kMostRead));
    return Fields{std::move(content)};
  }
  if (request.verb == "exists") {
    if (!env->Exists(path)) return absl::NotFoundError("does not exist");
    return Fields();
  }
  if (request.verb == "file" && fields.size() == 3) {
    SLUICE_RETURN_IF_ERROR(WriteOwnFile(fields[0], fields[1], fields[2]));
    return Fields();
  }
  if (request.verb == "start") return StartDaemon(fields);
  if (request.verb == "port" && fields.size() == 2) return ReservePort(fields);
  if (request.verb == "run") return RunProgram(fields);
  return absl::UnimplementedError(absl::StrCat("this guard does not know '", request.verb, "'"));
}

absl::Status HostGuard::AskVersion(uint64_t tag, const std::string& name) {
  if (absl::StrContains(name, '/')) return absl::InvalidArgumentError("not the name of a program");
  ChildOptions child;
  child.argv = {absl::StrCat(bin_, "/", name), "--version"};
  return Inquire(tag, "program", std::move(child));
}

std::string HostGuard::PackagePath() const {
  // The package of a build tree, and of a shipment.
  const std::string package = absl::StrCat(bin_, "/../python");
  std::error_code error;
  if (!std::filesystem::exists(package + "/sluice", error)) return "";
  const char* const path = std::getenv("PYTHONPATH");
  return absl::StrCat("PYTHONPATH=", package, path == nullptr || *path == '\0' ? "" : ":",
                      path == nullptr ? "" : path);
}

absl::Status HostGuard::AskPython(uint64_t tag, const std::string& interpreter) {
  SLUICE_ASSIGN_OR_RETURN(const std::string file, FindExecutable(interpreter));
  ChildOptions child;
  child.argv = {file, "-c", "from sluice import _core; print(_core.version())"};
  if (std::string path = PackagePath(); !path.empty()) child.environment.push_back(std::move(path));
  return Inquire(tag, "python", std::move(child));
}

absl::Status HostGuard::Inquire(uint64_t tag, const std::string& verb, ChildOptions child) {
  if (watch_.ending()) return absl::CancelledError("the guard ends");
  SLUICE_ASSIGN_OR_RETURN(OutputPipe output, OutputPipe::Make());
  child.name = child.argv[0];
  child.output = output.write_end();
  SLUICE_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start(std::move(child)));
  output.CloseWriteEnd();
  inquiries_.push_back({tag, verb, std::move(process), std::move(output),
                        Clock::Real()->Now() + patience_, /*text=*/""});
  return absl::OkStatus();
}

void HostGuard::AnswerInquiries(absl::Time now) {
  for (auto inquiry = inquiries_.begin(); inquiry != inquiries_.end();) {
    const std::optional<int> status = inquiry->process.Poll();
    const auto lines = status.has_value() ? inquiry->output.Rest() : inquiry->output.Lines(1);
    for (const std::string& line : lines) absl::StrAppend(&inquiry->text, line, "\n");
    if (inquiry->text.size() > kMostAnswer)
      inquiry->text.erase(0, inquiry->text.size() - kMostAnswer);
    absl::StatusOr<Fields> answer;
    if (status.has_value()) {
      answer = AnswerOf(*inquiry, *status);
    } else if (now >= inquiry->deadline || watch_.ending()) {
      inquiry->process.Signal(SIGKILL);
      answer = absl::DeadlineExceededError(
          absl::StrCat(inquiry->process.name(), " has not told its version within ",
                       absl::FormatDuration(patience_), "; its disk may be slow or gone"));
    } else {
      ++inquiry;
      continue;
    }
    if (answer.ok()) {
      Send({inquiry->tag, "ok", *std::move(answer)});
    } else {
      Send({inquiry->tag, "error", {std::string(answer.status().message())}});
    }
    inquiry = inquiries_.erase(inquiry);
  }
}

absl::StatusOr<HostGuard::Fields> HostGuard::AnswerOf(const Inquiry& inquiry,
                                                      int wait_status) const {
  const std::string text(absl::StripAsciiWhitespace(inquiry.text));
  if (inquiry.verb == "program") {
    if (wait_status == 0) return Fields{text};
    return absl::FailedPreconditionError(text.empty() ? DescribeExit(wait_status) : text);
  }
  // A traceback ends with the error.
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (wait_status == 0) return Fields{lines.back()};
  return absl::FailedPreconditionError(
      absl::StrCat(text.empty() ? DescribeExit(wait_status) : lines.back(),
                   "; the package sluice must be installed there, or sent with --ship"));
}

absl::StatusOr<HostGuard::Fields> HostGuard::ReservePort(const Fields& fields) {
  uint32_t from = 0, to = 0;
  if (!absl::SimpleAtoi(fields[0], &from) || !absl::SimpleAtoi(fields[1], &to))
    return absl::InvalidArgumentError("port has no numbers");
  std::set<uint32_t> taken;
  for (Daemon& daemon : daemons_) {
    if (!daemon.process.Poll().has_value()) taken.insert(daemon.port);
  }
  for (uint32_t port = from; port <= to; ++port) {
    reserved_ = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // As long as no socket listens there, others with SO_REUSEADDR may bind it, too.
    const int on = 1;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (taken.count(port) > 0 && port != 0) continue;
    (void)setsockopt(reserved_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(reserved_.get(), any, size) != 0 || getsockname(reserved_.get(), any, &size) != 0)
      continue;
    reserved_port_ = ntohs(address.sin_port);
    return Fields{absl::StrCat(reserved_port_)};
  }
  return absl::ResourceExhaustedError("no free port");
}

absl::StatusOr<HostGuard::Fields> HostGuard::RunProgram(const Fields& fields) {
  if (watch_.ending()) return absl::CancelledError("the guard ends");
  size_t variables = 0;
  if (fields.size() < 5 || !absl::SimpleAtoi(fields[3], &variables) ||
      fields.size() - 5 < variables) {
    return absl::InvalidArgumentError("run has too few fields");
  }
  const auto args = fields.begin() + 4 + static_cast<ptrdiff_t>(variables);
  ChildOptions child;
  child.name = fields[0];
  child.argv.assign(args, fields.end());
  SLUICE_ASSIGN_OR_RETURN(child.argv[0], FindExecutable(child.argv[0]));
  child.environment.assign(fields.begin() + 4, args);
  if (std::string path = PackagePath(); !path.empty()) child.environment.push_back(std::move(path));
  SLUICE_ASSIGN_OR_RETURN(OutputPipe output, OutputPipe::Make());
  SLUICE_ASSIGN_OR_RETURN(const pid_t pid,
                          Start(fields[0], fields[1], 0, std::move(output), std::move(child)));
  daemons_.back().shown = fields[2] == "1";
  return Fields{absl::StrCat(pid), "0"};
}

absl::Status HostGuard::WriteOwnFile(const std::string& name, const std::string& mode,
                                     const std::string& content) {
  uint32_t bits = 0;
  if (name.empty() || absl::StrContains(name, "..") || name[0] == '/' ||
      !absl::SimpleAtoi(mode, &bits) || bits > 0777) {
    return absl::InvalidArgumentError("not a file of this folder");
  }
  const std::string path = absl::StrCat(folder_, "/", name);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, bits);
  size_t done = 0;
  while (fd >= 0 && done < content.size()) {
    const ssize_t n = write(fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const int reason = errno;
  const bool whole = fd >= 0 && close(fd) == 0 && done == content.size();
  if (whole) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(reason)));
}

absl::StatusOr<HostGuard::Fields> HostGuard::StartDaemon(const Fields& fields) {
  if (watch_.ending()) return absl::CancelledError("the guard ends");
  if (fields.size() < 6) return absl::InvalidArgumentError("start has too few fields");
  uint32_t from = 0, to = 0;
  if (!absl::SimpleAtoi(fields[2], &from) || !absl::SimpleAtoi(fields[3], &to))
    return absl::InvalidArgumentError("start has no ports");
  const std::string& host = fields[4];
  ChildOptions child;
  child.name = fields[0];
  child.argv.assign(fields.begin() + 5, fields.end());
  if (absl::StrContains(child.argv[0], '/'))
    return absl::InvalidArgumentError("not the name of a program");
  child.argv[0] = absl::StrCat(bin_, "/", child.argv[0]);
  uint32_t port = 0;
  const bool listens = std::any_of(child.argv.begin(), child.argv.end(), [](const auto& arg) {
    return absl::StrContains(arg, "{bind}");
  });
  if (listens) {
    std::set<uint32_t> taken = {reserved_port_};
    for (Daemon& daemon : daemons_) {
      if (!daemon.process.Poll().has_value()) taken.insert(daemon.port);
    }
    port = FreePort(from, to, taken);
    if (port == 0) {
      return absl::ResourceExhaustedError(
          from == 0 ? "no free port"
                    : absl::StrCat("no free port in ", from, "-", to, "; give other --ports"));
    }
    const std::string name = absl::StrContains(host, ':') ? absl::StrCat("[", host, "]") : host;
    // A name that leads to loopback here, as Debian's installer sets it up, is no address that
    // others reach; nor is one behind a translation of addresses.
    const std::string any = absl::StrContains(host, ':') ? "[::]" : "0.0.0.0";
    const std::string bind = IsReachableHere(host) ? name : any;
    for (std::string& arg : child.argv) {
      arg = absl::StrReplaceAll(arg, {{"{bind}", absl::StrCat(bind, ":", port)},
                                      {"{advertise}", absl::StrCat(name, ":", port)}});
    }
  }
  SLUICE_ASSIGN_OR_RETURN(const pid_t pid, Start(fields[0], fields[1], port,
                                                 /*output=*/std::nullopt, std::move(child)));
  return Fields{absl::StrCat(pid), absl::StrCat(port)};
}

absl::StatusOr<pid_t> HostGuard::Start(const std::string& id, const std::string& log_name,
                                       uint32_t port, std::optional<OutputPipe> output,
                                       ChildOptions child) {
  child.log_file = absl::StrCat(folder_, "/log/", log_name);
  if (output.has_value()) child.output = output->write_end();
  LogReader log(child.log_file);
  (void)log.Tail(0);  // an earlier process of this name has been reported
  SLUICE_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start(std::move(child)));
  if (output.has_value()) output->CloseWriteEnd();
  const pid_t pid = process.pid();
  Daemon daemon = {id, std::move(process), std::move(log), port, std::move(output)};
  daemons_.push_back(std::move(daemon));
  return pid;
}

void HostGuard::SendLog(Daemon* daemon, bool has_ended) {
  const auto send = [&](const char* verb, std::string line) {
    if (unsent_.size() < kMostUnsentAtEnd || !watch_.ending())
      Send({0, verb, {daemon->id, std::move(line)}});
  };
  for (std::string& line : daemon->log.New()) send("log", std::move(line));
  if (!daemon->output.has_value()) return;
  const char* const verb = daemon->shown ? "out" : "log";
  OutputPipe& output = *daemon->output;
  for (std::string& line : has_ended ? output.Rest() : output.Lines(kMostUnsent))
    send(verb, std::move(line));
}

void HostGuard::Report() {
  for (Daemon& daemon : daemons_) {
    if (daemon.told) continue;
    const std::optional<int> status = daemon.process.Poll();
    if (unsent_.size() < kMostUnsent || status.has_value() || watch_.ending())
      SendLog(&daemon, status.has_value());
    if (!status.has_value()) continue;
    daemon.told = true;
    Send({0, "ended", {daemon.id, absl::StrCat(daemon.process.pid()), absl::StrCat(*status)}});
  }
}

bool HostGuard::DaemonsLeft() {
  return std::any_of(daemons_.begin(), daemons_.end(),
                     [](Daemon& daemon) { return !daemon.process.Poll().has_value(); });
}

void HostGuard::SignalAll(int number) {
  for (Daemon& daemon : daemons_) daemon.process.Signal(number);
}

}  // namespace

absl::Status RunHostGuard(int in, int out, absl::Duration patience) {
  return HostGuard(in, out, patience).Run();
}

}  // namespace sluice::cli
