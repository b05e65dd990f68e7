// A folder of a row's own, which its destructor removes.
//
// Thread safety: immutable.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace sluice::bench {

class TemporaryFolder {
 public:
  static absl::StatusOr<std::shared_ptr<TemporaryFolder>> Create() {
    std::string path = (std::filesystem::temp_directory_path() / "sluice_bench_XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr)
      return absl::UnavailableError(absl::StrCat("cannot make ", path));
    return std::make_shared<TemporaryFolder>(path);
  }
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace sluice::bench
