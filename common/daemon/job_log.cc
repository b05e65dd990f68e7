#include "common/daemon/job_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/printable.h"
#include "common/daemon/identity.h"

namespace sluice {

absl::Status AppendToJobLog(const std::string& log_dir, const std::string& job_id, Role role,
                            uint32_t rank, absl::Time now, const std::string& line) {
  // The id comes from the scheduler, and the log folder may lie beside others.
  if (job_id.empty() || job_id == "." || job_id == ".." || absl::StrContains(job_id, '/') ||
      absl::StrContains(job_id, '\0')) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job id '", PrintableLine(job_id),
                     "' is not the name of a folder, so the job has no log"));
  }
  const std::string folder = absl::StrCat(log_dir, "/", job_id);
  const std::string path = absl::StrCat(folder, "/", LogFileName(role, rank));
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  int fd = open(path.c_str(), kFlags, 0644);
  if (fd < 0 && errno == ENOENT) {
    std::error_code error;  // ignored: when this fails, the open below says why
    std::filesystem::create_directories(folder, error);
    fd = open(path.c_str(), kFlags, 0644);
  }
  if (fd < 0)
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  // One write in append mode keeps the line whole among the lines of other writers.
  const std::string text =
      absl::StrCat(absl::FormatTime("%Y-%m-%d %H:%M:%E3S", now, absl::LocalTimeZone()), " ",
                   PrintableLines(line), "\n");
  const ssize_t written = write(fd, text.data(), text.size());
  const int why = errno;
  close(fd);
  if (written == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "cannot write ", path, ": ", written < 0 ? std::strerror(why) : "the disk is full"));
}

}  // namespace sluice
