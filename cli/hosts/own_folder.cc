#include "cli/hosts/own_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"

namespace sluice::cli {
namespace {

constexpr char kPrefix[] = "sluice-own-";
constexpr int kLockTries = 5000;

void RemoveAbandoned(const std::string& base) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(base, error)) {
    const std::string path = entry.path().string();
    struct stat info;
    if (!absl::StartsWith(entry.path().filename().string(), kPrefix) ||
        lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
      continue;
    }
    // A new folder is empty until its process has the lock; an empty one has nothing to hide.
    const auto lock = FolderLock::Take(path, Env::Real());
    if (!lock.ok() || std::filesystem::is_empty(path, error)) continue;
    std::filesystem::remove_all(path, error);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<OwnFolder>> OwnFolder::Make(const std::string& name) {
  const char* const variable = std::getenv("TMPDIR");
  const std::string base = variable == nullptr || *variable == '\0' ? "/tmp" : variable;
  RemoveAbandoned(base);
  std::string path = absl::StrCat(base, "/", kPrefix, name, "-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::InternalError(
        absl::StrCat("cannot make a folder in ", base, ": ", std::strerror(errno)));
  }
  std::unique_ptr<OwnFolder> folder(new OwnFolder(base, path));
  // Another process that tidies up may hold the lock of the empty folder for a moment. Without the
  // lock, the next one would remove the folder under its owner.
  auto lock = FolderLock::Take(path, Env::Real());
  for (int tries = 0; absl::IsAlreadyExists(lock.status()) && tries < kLockTries; ++tries) {
    Clock::Real()->Sleep(absl::Milliseconds(1));
    lock = FolderLock::Take(path, Env::Real());
  }
  SLUICE_RETURN_IF_ERROR(lock.status());
  folder->lock_ = *std::move(lock);
  return folder;
}

OwnFolder::~OwnFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  RemoveAbandoned(base_);
}

}  // namespace sluice::cli
