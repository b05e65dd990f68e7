#include "common/daemon/endpoint_list.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file_lock.h"
#include "common/base/file_origin.h"
#include "common/base/local_path.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"

namespace sluice {
namespace {

absl::StatusOr<int> OpenForAppend(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) return fd;
  return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno),
                                                 "; give a writable --log_dir"));
}

// Continues after partial writes. The process works without its line: errors are dropped.
void WriteLine(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// The port that endpoints.log gives for the scheduler that runs as `pid`; -1 if it gives none. A
// line of an earlier scheduler says nothing about the present one.
int PortOfScheduler(const std::string& endpoints, uint32_t pid) {
  std::ifstream in(endpoints);
  int port = -1;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 4 || words[0] != RoleName(ROLE_SCHEDULER)) continue;
    const absl::StatusOr<Address> address = ParseAddress(words[2]);
    port = address.ok() && words[3] == absl::StrCat(pid) ? address->port : -1;
  }
  return port;
}

// Refuses a folder in which the running scheduler of another cluster logs. Compares ports only,
// because a scheduler has several names but one port.
absl::Status CheckCluster(const Identity& identity) {
  const absl::StatusOr<std::vector<Address>> own = ParseAddressList(identity.scheduler);
  if (identity.role == ROLE_SCHEDULER || !own.ok()) return absl::OkStatus();
  const uint32_t pid =
      FileLock::HolderOf(absl::StrCat(identity.log_dir, "/", LogFileName(ROLE_SCHEDULER, 0)));
  if (pid == 0) return absl::OkStatus();
  const int port = PortOfScheduler(identity.log_dir + "/endpoints.log", pid);
  const bool known = std::any_of(own->begin(), own->end(),
                                 [port](const Address& address) { return address.port == port; });
  if (port < 0 || known) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(identity.log_dir, " is the log folder of another cluster, whose scheduler (pid ",
                   pid, ", port ", port, ") runs; this process belongs to the scheduler at ",
                   identity.scheduler, ": give it another --log_dir (SLUICE_LOG_DIR)"));
}

}  // namespace

absl::Status CreateLogFolder(const std::string& folder) {
  if (HasScheme(folder)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_dir=", folder, ": '", folder, "' ", SchemeProblem(folder)));
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot create the log folder ", folder, ": ",
                                                 error.message(), "; give a writable --log_dir"));
}

absl::Status AppendEndpoint(Env* env, const Identity& identity, const std::string& address,
                            const std::string& admin_address) {
  SLUICE_RETURN_IF_ERROR(CreateLogFolder(identity.log_dir));
  SLUICE_RETURN_IF_ERROR(CheckCluster(identity));
  const std::string path = absl::StrCat(identity.log_dir, "/endpoints.log");
  SLUICE_ASSIGN_OR_RETURN(const int fd, OpenForAppend(path));
  const auto or_dash = [](const std::string& text) {
    return text.empty() ? std::string("-") : text;
  };
  std::string text =
      absl::StrCat(RoleName(identity.role), " ", identity.rank, " ", or_dash(address), " ",
                   getpid(), " ", or_dash(admin_address), "\n");
  // All processes of a host append to this file. The lock makes only the first write the header.
  flock(fd, LOCK_EX);
  struct stat info;
  const bool empty = fstat(fd, &info) == 0 && info.st_size == 0;
  const bool foreign = !empty && !IsOwnFile(env, path, FileKind::kEndpoints);
  if (empty) text.insert(0, kOwnEndpointsLine);
  if (!foreign) WriteLine(fd, text);
  close(fd);
  if (!foreign) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(path,
                   " exists, and nothing in it shows that Sluice wrote it; move it away, or "
                   "give another --log_dir (SLUICE_LOG_DIR)"));
}

}  // namespace sluice
