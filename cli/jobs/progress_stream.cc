#include "cli/jobs/progress_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/admin/status_json.h"

namespace sluice::cli {
namespace {

// Line ends within a text are escaped, so the others are only layout.
std::string LineOf(JobStatus status) {
  // The rest of the configuration may be large, and does not change.
  JobConfig config;
  config.set_name(status.config().name());
  config.set_output_dir(status.config().output_dir());
  *status.mutable_config() = config;
  return absl::StrCat(absl::StrReplaceAll(StatusJson(status), {{"\n", " "}}), "\n");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProgressStream>> ProgressStream::Open(long fd) {
  struct stat file;
  const int number = static_cast<int>(fd);
  const int flags = fd > STDERR_FILENO && fd == number ? fcntl(number, F_GETFL) : -1;
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || fstat(number, &file) != 0 ||
      !S_ISFIFO(file.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--progress_fd=", fd, " is not the writing end of a pipe that this process has inherited"));
  }
  const int stop = eventfd(0, EFD_CLOEXEC);
  if (stop < 0 || fcntl(number, F_SETFL, flags | O_NONBLOCK) != 0 ||
      fcntl(number, F_SETFD, FD_CLOEXEC) != 0) {
    return absl::InternalError(absl::StrCat("--progress_fd: ", std::strerror(errno)));
  }
  auto stream = absl::WrapUnique(new ProgressStream(number, stop));
  stream->watcher_ = std::thread([stream = stream.get()] { stream->WatchReader(); });
  return stream;
}

ProgressStream::~ProgressStream() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof(one));
  watcher_.join();
  close(fd_);
  close(stop_);
}

void ProgressStream::WatchReader() {
  // Without events: only the error that the kernel reports when no reader is left.
  pollfd ends[] = {{fd_, 0, 0}, {stop_, POLLIN, 0}};
  while (poll(ends, 2, -1) < 0) {
    if (errno != EINTR) return;
  }
  if (ends[1].revents == 0) kill(getpid(), SIGTERM);
}

void ProgressStream::Update(const JobStatus& status) {
  Flush();
  if (!rest_.empty()) return;
  rest_ = LineOf(status);
  Flush();
}

void ProgressStream::Finish(const JobStatus& status) {
  absl::StrAppend(&rest_, LineOf(status));
  for (;;) {
    Flush();
    if (rest_.empty()) return;
    pollfd room = {fd_, POLLOUT, 0};
    const int ready = poll(&room, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience)));
    if (ready == 0 || (ready < 0 && errno != EINTR)) return;
  }
}

void ProgressStream::Flush() {
  while (!rest_.empty()) {
    const ssize_t n = write(fd_, rest_.data(), rest_.size());
    if (n > 0) {
      rest_.erase(0, static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      rest_.clear();  // nobody reads
    }
  }
}

}  // namespace sluice::cli
