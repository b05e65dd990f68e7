#include "common/daemon/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr uint64_t kMostMb = 1 << 20;  // 1 TiB
constexpr uint64_t kMostFiles = 1000;
constexpr char kStarts[] = " starts: pid ";

absl::StatusOr<int> OpenLogForAppend(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) return fd;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

bool HaveSameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool Rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str()) == 0;
}

absl::Status SystemError(const std::string& what) {
  const int error = errno;
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

}  // namespace

absl::Status CheckLogLimits(uint64_t max_mb, uint64_t keep) {
  if (max_mb < 1 || max_mb > kMostMb) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_max_mb=", max_mb, " is out of range; give 1 to ", kMostMb));
  }
  if (keep < 1 || keep > kMostFiles) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_keep=", keep, " is out of range; give 1 to ", kMostFiles));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LogFile>> LogFile::Open(const std::string& path, Limits limits,
                                                       uint32_t* holder) {
  // The lock comes first: while another process has it, that process may rotate the file.
  SLUICE_ASSIGN_OR_RETURN(FileLock lock, FileLock::Take(path, holder));
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenLogForAppend(path));
  // A process that died in the middle of a rotation leaves one file under two names.
  const std::string older = absl::StrCat(path, ".1");
  struct stat newest, next;
  if (fstat(fd, &newest) == 0 && stat(older.c_str(), &next) == 0 && HaveSameFile(newest, next))
    unlink(older.c_str());
  return std::unique_ptr<LogFile>(new LogFile(path, limits, fd, std::move(lock)));
}

LogFile::~LogFile() { close(fd_); }

std::string LogFile::Name(uint32_t number) const { return absl::StrCat(path_, ".", number); }

bool LogFile::HasItsName() const {
  struct stat own, named;
  return fstat(fd_, &own) == 0 && stat(path_.c_str(), &named) == 0 && HaveSameFile(own, named);
}

void LogFile::Write(absl::string_view lines) {
  MutexLock lock(&mutex_);
  MakeRoom(lines.size());
  Append(lines);
}

void LogFile::Reopen() {
  MutexLock lock(&mutex_);
  const absl::Status reopened = ReopenLocked();
  if (!reopened.ok()) {
    Append(absl::StrCat(
        "the log is not reopened, and continues in the old file: ", reopened.message(), "\n"));
  }
}

absl::Status LogFile::ReopenLocked() {
  if (HasItsName()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenLogForAppend(path_));
  absl::StatusOr<FileLock> lock = FileLock::Take(path_);
  if (!lock.ok()) {
    close(fd);
    return lock.status();
  }
  Switch(fd, *std::move(lock));
  return absl::OkStatus();
}

void LogFile::MakeRoom(uint64_t bytes) {
  struct stat info;
  if (fstat(fd_, &info) != 0) return;
  const auto size = static_cast<uint64_t>(info.st_size);
  const bool full = size > 0 && size + bytes > limits_.max_bytes && size >= rotate_from_;
  // Lines written into a removed file would vanish with this process. A full file that somebody has
  // moved needs no rotation.
  if (info.st_nlink == 0 || (full && !HasItsName())) {
    (void)ReopenLocked();
    return;
  }
  if (!full) return;
  const bool first_try = rotate_from_ == 0;
  const absl::Status rotated = Rotate();
  // After a failure the next try comes when the file has grown further, not with each line.
  rotate_from_ = rotated.ok() ? 0 : size + std::max<uint64_t>(limits_.max_bytes / 16, 1);
  if (rotated.ok() || !first_try) return;
  Append(absl::StrCat(
      "the log grows beyond its limit, because it cannot be rotated: ", rotated.message(), "\n"));
}

absl::Status LogFile::Rotate() {
  // The next file is complete and locked before it gets the name. The name of the log is never
  // free, which another process could take for a log without an owner.
  const std::string next = absl::StrCat(path_, ".next");
  SLUICE_ASSIGN_OR_RETURN(FileLock lock, FileLock::Take(next));
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenLogForAppend(next));
  const auto fail = [fd](const std::string& what) {
    absl::Status error = SystemError(what);
    close(fd);
    return error;
  };
  bool linked = false;
  if (limits_.keep > 1) {
    // Only up to the first number that is free: a rotation that failed has left a gap, and trying
    // again must not push older files out.
    uint32_t free = 1;
    while (free + 1 < limits_.keep && access(Name(free).c_str(), F_OK) == 0) ++free;
    for (uint32_t number = free; number > 1; --number) {
      if (!Rename(Name(number - 1), Name(number)))
        return fail(absl::StrCat("cannot rename ", Name(number - 1)));
    }
    // When only one older file is kept, it makes room here.
    if (free == 1) unlink(Name(1).c_str());
    // With a second name the file has its old one until the next file takes it over. Where the
    // file system has no links, the name is free for a moment.
    linked = link(path_.c_str(), Name(1).c_str()) == 0;
    if (!linked && !Rename(path_, Name(1))) return fail(absl::StrCat("cannot rename ", path_));
  }
  if (!Rename(next, path_)) {
    const absl::Status error = fail(absl::StrCat("cannot rename ", next));
    if (linked) {
      unlink(Name(1).c_str());
    } else if (limits_.keep > 1) {
      Rename(Name(1), path_);
    }
    return error;
  }
  // Files of an earlier process that kept more of them.
  for (uint32_t number = limits_.keep; unlink(Name(number).c_str()) == 0; ++number) {
  }
  Switch(fd, std::move(lock));
  return absl::OkStatus();
}

void LogFile::Switch(int fd, FileLock lock) {
  // A launcher has redirected these into the log. Each dup2 is atomic: a write that is on its way
  // ends up in the old file or in the new one.
  struct stat own, other;
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    if (fstat(fd_, &own) == 0 && fstat(standard, &other) == 0 && HaveSameFile(own, other))
      dup2(fd, standard);
  }
  dup3(fd, fd_, O_CLOEXEC);
  close(fd);
  lock_ = std::move(lock);
  torn_ = false;
}

void LogFile::Append(absl::string_view lines) {
  // Says first what is missing here.
  if (lost_lines_ > 0) {
    const std::string missing = absl::StrCat(
        "sluice: ", lost_lines_, lost_lines_ == 1 ? " line of the log is" : " lines of the log are",
        " missing here: ", std::strerror(lost_error_), "\n");
    if (Put(missing)) lost_lines_ = 0;
  }
  if (!Put(lines)) lost_lines_ += std::count(lines.begin(), lines.end(), '\n');
}

bool LogFile::Put(absl::string_view bytes) {
  // A write that failed may have left a part of its line, which must not run into the next one.
  std::string whole;
  if (torn_) {
    whole = absl::StrCat("\n", bytes);
    bytes = whole;
  }
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      lost_error_ = n < 0 ? errno : ENOSPC;
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(n));
    torn_ = !bytes.empty();
  }
  return true;
}

std::string LogStartLine(const std::string& name, const std::string& version) {
  return absl::StrCat(name, kStarts, getpid(), ", version ", version);
}

bool IsLogStart(absl::string_view line) {
  const size_t text = line.find("] sluice-");
  return text != absl::string_view::npos && absl::StrContains(line.substr(text), kStarts);
}

}  // namespace sluice
