// A log file of bounded size. PATH is always the newest file, PATH.1 the next older one, and so on.
//
// A file that would grow beyond its limit is renamed, and the next one takes its place. Descriptors
// keep their numbers: standard output and standard error of this process follow to the new file
// when they were redirected into the log.
//
// Invariants: PATH exists and is locked by this process at every moment, so that no other process
// takes it for a log without an owner. No line is lost at a rotation, and lines stay whole and in
// order. A failure, such as a full disk, ends nothing: while a file cannot be rotated, lines go on
// into it, and lines that cannot be written are counted and named once writing works again.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/file_lock.h"
#include "common/base/mutex.h"

namespace sluice {

struct LogLimits {
  uint64_t max_mb = 64;  // size of a file, MiB
  uint32_t keep = 5;     // files of a log, the newest one included
};

// INVALID_ARGUMENT names the flag (--log_max_mb, --log_keep) that is out of range, and the range.
absl::Status CheckLogLimits(uint64_t max_mb, uint64_t keep);

class LogFile {
 public:
  struct Limits {
    uint64_t max_bytes = 64 << 20;  // a single longer line still makes a longer file
    uint32_t keep = 5;
  };
  static Limits BytesOf(const LogLimits& limits) { return {limits.max_mb << 20, limits.keep}; }

  // Appends to the file, or creates it. INVALID_ARGUMENT: it cannot be written. ALREADY_EXISTS:
  // another process has it; *holder, when given, is that process as in FileLock::Take.
  static absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& path, Limits limits,
                                                       uint32_t* holder = nullptr);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Appends `lines`, which end with a line end, in one piece.
  void Write(absl::string_view lines);
  // Continues in the file that now has the name, which is created if it is missing: somebody has
  // moved the old one away. On failure goes on in the old one and writes the reason into it.
  void Reopen();

  const std::string& path() const { return path_; }
  // False once somebody has moved or removed the file.
  bool HasItsName() const;
  // Constant, also after a rotation. For writes that must not lock, as in a signal handler.
  int fd() const { return fd_; }

 private:
  LogFile(std::string path, Limits limits, int fd, FileLock lock)
      : path_(std::move(path)), limits_(limits), fd_(fd), lock_(std::move(lock)) {}
  std::string Name(uint32_t number) const;
  void MakeRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Rotate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReopenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the open file `fd` the log's, and closes `fd`.
  void Switch(int fd, FileLock lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(absl::string_view lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Put(absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Limits limits_;
  const int fd_;
  Mutex mutex_;
  FileLock lock_ ABSL_GUARDED_BY(mutex_);
  uint64_t rotate_from_ ABSL_GUARDED_BY(mutex_) = 0;  // no new try below this size
  uint64_t lost_lines_ ABSL_GUARDED_BY(mutex_) = 0;   // since the last line that was written
  int lost_error_ ABSL_GUARDED_BY(mutex_) = 0;        // errno of the newest lost line
  bool torn_ ABSL_GUARDED_BY(mutex_) = false;         // the file ends with a part of a line
};

// The first line that a process writes into its log: "sluice-worker 0 starts: pid 7, version 1".
std::string LogStartLine(const std::string& name, const std::string& version);
// True for a line of a log that has LogStartLine as its text.
bool IsLogStart(absl::string_view line);

}  // namespace sluice
