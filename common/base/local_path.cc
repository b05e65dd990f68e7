#include "common/base/local_path.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace sluice {

bool HasScheme(absl::string_view path) {
  const size_t end = path.find("://");
  if (end == absl::string_view::npos || end == 0 || !absl::ascii_isalpha(path[0])) return false;
  // RFC 3986, section 3.1.
  return std::all_of(path.begin(), path.begin() + end, [](char c) {
    return absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.';
  });
}

std::string SchemeProblem(absl::string_view path) {
  if (!HasScheme(path)) return "";
  const absl::string_view scheme = path.substr(0, path.find(':'));
  const absl::string_view rest = path.substr(scheme.size() + 3);
  if (absl::AsciiStrToLower(scheme) == "file") {
    return absl::StrCat(
        "is a URL; give the path itself: ", rest.empty() || rest[0] != '/' ? "/" : "", rest);
  }
  return absl::StrCat("is a URL, and ", scheme,
                      ":// is not supported: files and folders are those of this host and of "
                      "mounted file systems (such as NFS), data files are plain text, gzip or "
                      "zstd; copy or mount what the URL names, and give its path");
}

}  // namespace sluice
