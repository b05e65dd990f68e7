#include "common/daemon/process_log.h"

#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/endpoint_list.h"
#include "common/daemon/log_file.h"
#include "common/daemon/process_info.h"

namespace sluice {
namespace {

// Continues after partial writes. Drops errors, because a failing log cannot report its own
// failure.
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

// Says which process has the log that this process needs. `holder`: its pid, or 0.
absl::Status InUse(const Identity& identity, const std::string& path, uint32_t holder) {
  const std::string who =
      absl::StrCat(RoleName(identity.role),
                   identity.role == ROLE_SCHEDULER ? "" : absl::StrCat(" ", identity.rank));
  return absl::AlreadyExistsError(
      absl::StrCat(path, " is the log of another ", who, ", ",
                   holder > 0 ? absl::StrCat("pid ", holder) : "a process",
                   " that is running; stop it, or give this process another --log_dir "
                   "(SLUICE_LOG_DIR)"));
}

// "sluice-pserver 2".
std::string NameOf(const Identity& identity) {
  return absl::StrCat("sluice-", RoleName(identity.role),
                      identity.role == ROLE_SCHEDULER ? "" : absl::StrCat(" ", identity.rank));
}

// Passes glog's lines to a log file with a fixed name, in which every line appears at once. glog's
// own files have dates and pids in their names, and glog removes none of them.
//
// Thread safety: safe from any thread.
class FileSink : public google::LogSink {
 public:
  // `launched`: standard error is the log itself.
  FileSink(std::unique_ptr<LogFile> file, bool launched)
      : file_(std::move(file)), launched_(launched) {}
  void send(google::LogSeverity severity, const char*, const char* base_filename, int line,
            const google::LogMessageTime& time, const char* message, size_t size) override {
    // Lines hold text of peers, who may not write lines of their own.
    const std::string shown = PrintableLines(absl::string_view(message, size));
    std::string text = ToString(severity, base_filename, line, time, shown.data(), shown.size());
    text += '\n';
    file_->Write(text);
    if (!launched_ && (severity >= google::GLOG_WARNING || tells_)) Tell(shown);
    // Relaxed: a line of another thread may still be told.
    if (absl::StartsWith(shown, kReadyMark)) tells_.store(false, std::memory_order_relaxed);
  }
  LogFile* file() const { return file_.get(); }
  // From now on all lines also go to standard error, until the one with kReadyMark.
  void TellStart() { tells_ = true; }
  bool tells() const { return launched_ || tells_; }
  void Tell(const std::string& line) const {
    const std::string text = line + "\n";
    WriteAll(STDERR_FILENO, text.data(), text.size());
  }

 private:
  const std::unique_ptr<LogFile> file_;
  const bool launched_;
  std::atomic<bool> tells_{false};
};

// Lives until the next OpenLog or the end of the process: glog may log while the process exits.
FileSink* g_sink = nullptr;

// Runs inside a signal handler, with pieces of a stack trace: it must not allocate or lock.
void WriteFailure(const char* data, size_t size) {
  WriteAll(STDERR_FILENO, data, size);
  if (g_sink != nullptr && !SameFile(g_sink->file()->fd(), STDERR_FILENO))
    WriteAll(g_sink->file()->fd(), data, size);
}

}  // namespace

absl::Status OpenLog(const Identity& identity, const char* argv0, const LogLimits& limits) {
  SLUICE_RETURN_IF_ERROR(CreateLogFolder(identity.log_dir));
  const std::string path =
      absl::StrCat(identity.log_dir, "/", LogFileName(identity.role, identity.rank));
  if (g_sink != nullptr && g_sink->file()->path() == path && g_sink->file()->HasItsName())
    return absl::OkStatus();
  uint32_t holder = 0;
  absl::StatusOr<std::unique_ptr<LogFile>> file =
      LogFile::Open(path, LogFile::BytesOf(limits), &holder);
  if (absl::IsAlreadyExists(file.status())) return InUse(identity, path, holder);
  if (!file.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.status().message(), "; give a writable --log_dir"));
  }
  // An empty destination turns off glog's own file for this severity.
  for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
  }
  // A launcher redirects stderr into this very file. Lines must not appear there twice. For the
  // other case the sink writes to stderr itself, without glog's prefix.
  const bool launched = SameFile((*file)->fd(), STDERR_FILENO);
  FLAGS_stderrthreshold = google::NUM_SEVERITIES;
  if (!launched) {
    const std::string who = absl::StrCat(NameOf(identity), ": logs in ", path, "\n");
    WriteAll(STDERR_FILENO, who.data(), who.size());
  }
  if (!google::IsGoogleLoggingInitialized()) google::InitGoogleLogging(argv0);
  FileSink* const before = g_sink;
  g_sink = new FileSink(*std::move(file), launched);
  if (before != nullptr) {
    google::RemoveLogSink(before);  // waits for lines that are on their way to it
    delete before;
  }
  google::AddLogSink(g_sink);
  LOG(INFO) << LogStartLine(NameOf(identity), SluiceVersion());
  if (!identity.credentials.tls()) {
    LOG(INFO) << "without TLS: roles and ranks are not verified, they are what peers say they are; "
                 "--tls_cert, --tls_key and --tls_ca verify them";
  }
  g_sink->TellStart();
  google::InstallFailureWriter(&WriteFailure);
  google::InstallFailureSignalHandler();
  return absl::OkStatus();
}

void ReopenLog() {
  if (g_sink == nullptr) return;
  g_sink->file()->Reopen();
  LOG(INFO) << "SIGHUP: the log is open again";
}

absl::StatusOr<std::unique_ptr<AuditLog>> OpenAuditLog(const Identity& identity, Clock* clock,
                                                       Env* env) {
  AuditLog::Options audit;
  audit.path = absl::StrCat(identity.log_dir, "/", AuditFileName(identity.role, identity.rank));
  audit.role = RoleName(identity.role);
  audit.rank = identity.rank;
  audit.clock = clock;
  audit.env = env;
  audit.log = [](const std::string& line) { LOG(WARNING) << line; };
  return AuditLog::Open(std::move(audit));
}

void LogAndTell(const std::string& line) {
  const bool told = g_sink == nullptr || g_sink->tells();
  LOG(INFO) << line;
  if (!told) g_sink->Tell(PrintableLines(line));
}

}  // namespace sluice
