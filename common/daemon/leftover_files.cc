#include "common/daemon/leftover_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/env.h"
#include "common/daemon/process_info.h"

namespace sluice {
namespace {

// Returns whether no process writes the file, and it is a regular file of this user.
bool IsUnused(const std::string& path) {
  // O_NOFOLLOW refuses a link, and O_NONBLOCK does not wait for the writer of a pipe: neither is of
  // Sluice.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info;
  const bool unused = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                      info.st_uid == ::geteuid() && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return unused;
}

}  // namespace

void RemoveLeftovers(const std::string& output,
                     const std::function<bool(const std::string& path)>& is_ours) {
  const size_t name_at = output.rfind('/') + 1;  // npos + 1 is 0
  const std::string folder = name_at == 0 ? "./" : output.substr(0, name_at);
  const std::string prefix = output.substr(name_at) + ".";
  for (const std::string& name : Env::Real()->List(folder).value_or(std::vector<std::string>())) {
    absl::string_view pid = name;
    uint32_t number = 0;
    if (!absl::ConsumePrefix(&pid, prefix) || !absl::ConsumeSuffix(&pid, kUnfinishedSuffix) ||
        !absl::SimpleAtoi(pid, &number) || absl::StrCat(number) != pid) {
      continue;
    }
    const std::string path = folder + name;
    if (ProcessHasEnded(number) && IsUnused(path) && is_ours(path)) ::unlink(path.c_str());
  }
}

}  // namespace sluice
