#include <glob.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/data/data_source.h"

namespace sluice {
namespace {

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::Status ExpandPattern(const std::string& pattern, const std::string& base,
                           std::vector<std::string>* files) {
  struct stat info;
  if (stat(pattern.c_str(), &info) == 0) {  // a file's own name, whatever characters it has
    if (S_ISDIR(info.st_mode)) {
      return absl::NotFoundError(
          absl::StrCat("data file \"", pattern, "\" is a folder; write \"", pattern, "/*\""));
    }
    files->push_back(pattern);
    return absl::OkStatus();
  }
  glob_t found{};
  const int result = glob(pattern.c_str(), 0, nullptr, &found);
  const size_t before = files->size();
  if (result == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      if (!IsFolder(found.gl_pathv[i])) files->push_back(found.gl_pathv[i]);
    }
  }
  globfree(&found);
  if (files->size() > before) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no data file matches \"", pattern,
                                          "\"; relative paths are resolved against ", base));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandFiles(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, const std::string& base) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns)
    SLUICE_RETURN_IF_ERROR(ExpandPattern(pattern, base, &files));
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace sluice
