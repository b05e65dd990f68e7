// A folder in TMPDIR (else /tmp) for this user alone that goes with its process. What a killed
// process leaves there is removed by the next process that makes or removes such a folder.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/file_lock.h"

namespace sluice::cli {

class OwnFolder {
 public:
  // `name`: of what it is for, such as "guard". INTERNAL: it cannot be made.
  static absl::StatusOr<std::unique_ptr<OwnFolder>> Make(const std::string& name);
  ~OwnFolder();

  const std::string& path() const { return path_; }

 private:
  OwnFolder(std::string base, std::string path) : base_(std::move(base)), path_(std::move(path)) {}
  const std::string base_, path_;
  // Held as long as the folder is in use.
  std::optional<FolderLock> lock_;
};

}  // namespace sluice::cli
