// The process's log file and endpoints.log.
#include "common/daemon/process_log.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/file_lock.h"
#include "common/base/status_macros.h"
#include "common/daemon/identity.h"

namespace sluice {
namespace {

constexpr char kEndpointsHeader[] = "# role rank address pid admin_address\n";

absl::StatusOr<int> OpenForAppend(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) return fd;
  return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno),
                                                 "; give a writable --log_dir"));
}

absl::Status CreateFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot create the log folder ", folder, ": ",
                                                 error.message(), "; give a writable --log_dir"));
}

// Partial writes are continued; errors are dropped, as a log has nobody to tell.
void WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    data += n;
    size -= n;
  }
}

bool SameFile(int a, int b) {
  struct stat first, second;
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// ALREADY_EXISTS: another process logs there.
absl::StatusOr<FileLock> LockLog(const Identity& identity, const std::string& path) {
  uint32_t holder = 0;
  absl::StatusOr<FileLock> lock = FileLock::Take(path, &holder);
  if (!absl::IsAlreadyExists(lock.status())) return lock;
  const std::string who =
      absl::StrCat(RoleName(identity.role),
                   identity.role == ROLE_SCHEDULER ? "" : absl::StrCat(" ", identity.rank));
  return absl::AlreadyExistsError(
      absl::StrCat(path, " is the log of another ", who, ", ",
                   holder > 0 ? absl::StrCat("pid ", holder) : "a process",
                   " that runs; stop it, or give this process another --log_dir (SLUICE_LOG_DIR)"));
}

// glog's own files carry dates and pids in their names; ours has one name and every line is there
// at once. Thread safety: one write(2) a line, in append mode.
class FileSink : public google::LogSink {
 public:
  // The lock is of the same file.
  FileSink(int fd, FileLock lock) : fd_(fd), lock_(std::move(lock)) {}
  ~FileSink() override { close(fd_); }
  void send(google::LogSeverity severity, const char*, const char* base_filename, int line,
            const google::LogMessageTime& time, const char* message, size_t size) override {
    std::string text = ToString(severity, base_filename, line, time, message, size);
    text += '\n';
    WriteAll(fd_, text.data(), text.size());
  }
  int fd() const { return fd_; }
  FileLock TakeLock() { return std::move(lock_); }

 private:
  const int fd_;
  FileLock lock_;
};

FileSink* g_sink = nullptr;  // until the next OpenLog or the process's end: glog may log at exit

// Called inside a signal handler with a stack trace.
void WriteFailure(const char* data, size_t size) {
  WriteAll(STDERR_FILENO, data, size);
  if (g_sink != nullptr && !SameFile(g_sink->fd(), STDERR_FILENO))
    WriteAll(g_sink->fd(), data, size);
}

}  // namespace

absl::Status OpenLog(const Identity& identity, const char* argv0) {
  SLUICE_RETURN_IF_ERROR(CreateFolder(identity.log_dir));
  const std::string path =
      absl::StrCat(identity.log_dir, "/", LogFileName(identity.role, identity.rank));
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenForAppend(path));
  absl::StatusOr<FileLock> lock = g_sink != nullptr && SameFile(fd, g_sink->fd())
                                      ? g_sink->TakeLock()
                                      : LockLog(identity, path);
  if (!lock.ok()) {
    close(fd);
    return lock.status();
  }
  // An empty destination turns glog's own file of this severity off.
  for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
  }
  // A launcher redirects stderr into this very file: no line twice.
  const bool launched = SameFile(fd, STDERR_FILENO);
  FLAGS_stderrthreshold = launched ? google::NUM_SEVERITIES : google::GLOG_WARNING;
  if (!launched) {
    const std::string who =
        absl::StrCat("sluice-", RoleName(identity.role),
                     identity.role == ROLE_SCHEDULER ? "" : absl::StrCat(" ", identity.rank),
                     ": logs in ", path, "\n");
    WriteAll(STDERR_FILENO, who.data(), who.size());
  }
  if (!google::IsGoogleLoggingInitialized()) google::InitGoogleLogging(argv0);
  FileSink* const before = g_sink;
  g_sink = new FileSink(fd, *std::move(lock));
  if (before != nullptr) {
    google::RemoveLogSink(before);  // returns when no line is on its way to it
    delete before;
  }
  google::AddLogSink(g_sink);
  google::InstallFailureWriter(&WriteFailure);
  google::InstallFailureSignalHandler();
  return absl::OkStatus();
}

void LogAndTell(const std::string& line) {
  LOG(INFO) << line;
  if (g_sink == nullptr || SameFile(g_sink->fd(), STDERR_FILENO)) return;
  const std::string text = line + "\n";
  WriteAll(STDERR_FILENO, text.data(), text.size());
}

absl::Status AppendEndpoint(const Identity& identity, const std::string& address,
                            const std::string& admin_address) {
  SLUICE_RETURN_IF_ERROR(CreateFolder(identity.log_dir));
  SLUICE_ASSIGN_OR_RETURN(const int fd,
                          OpenForAppend(absl::StrCat(identity.log_dir, "/endpoints.log")));
  const auto or_dash = [](const std::string& text) {
    return text.empty() ? std::string("-") : text;
  };
  std::string text =
      absl::StrCat(RoleName(identity.role), " ", identity.rank, " ", or_dash(address), " ",
                   getpid(), " ", or_dash(admin_address), "\n");
  // All processes of a host append here: the lock keeps the header single.
  flock(fd, LOCK_EX);
  struct stat info;
  if (fstat(fd, &info) == 0 && info.st_size == 0) text.insert(0, kEndpointsHeader);
  WriteAll(fd, text.data(), text.size());
  close(fd);
  return absl::OkStatus();
}

}  // namespace sluice
