#include "common/base/url_roots.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/mutex.h"

namespace sluice {
namespace {

// Roots are those of a process, and its redirects are met far below what knows them.
struct RedirectRule {
  Mutex mutex;
  std::optional<std::vector<std::string>> roots ABSL_GUARDED_BY(mutex);
};

RedirectRule& Redirects() {
  static RedirectRule* const rule = new RedirectRule;  // never destroyed: reads may outlive main
  return *rule;
}

bool HasDotPart(const std::string& rest) {
  const std::vector<std::string> parts = absl::StrSplit(rest, absl::ByAnyChar("/?#;"));
  return std::any_of(parts.begin(), parts.end(),
                     [](const std::string& part) { return part == "." || part == ".."; });
}

}  // namespace

bool MayLeadOut(const std::string& url) {
  std::string rest = absl::AsciiStrToLower(url.substr(std::min(url.find("://"), url.size())));
  // A key is not decoded, but a server in front of the store may follow its parts. In a pattern a
  // backslash stands before a character that is itself.
  if (absl::StartsWith(url, "s3://")) return HasDotPart(absl::StrReplaceAll(rest, {{"\\", ""}}));
  // Some servers decode more than once.
  while (absl::StrContains(rest, "%25")) rest = absl::StrReplaceAll(rest, {{"%25", "%"}});
  if (absl::StrContains(rest, "%2f") || absl::StrContains(rest, "%5c") ||
      absl::StrContains(rest, "\\")) {
    return true;
  }
  return HasDotPart(
      absl::StrReplaceAll(rest, {{"%2e", "."}, {"%3b", ";"}, {"%3f", "?"}, {"%23", "#"}}));
}

bool IsBelowUrlRoot(const std::string& url, const std::vector<std::string>& roots) {
  const bool below = std::any_of(roots.begin(), roots.end(), [&](const std::string& root) {
    return absl::StartsWith(url, root) && (url.size() == root.size() || url[root.size()] == '/');
  });
  return below && !MayLeadOut(url);
}

void ConfineRedirects(std::vector<std::string> roots) {
  auto& redirects = Redirects();
  MutexLock lock(&redirects.mutex);
  redirects.roots = std::move(roots);
}

bool RedirectIsAllowed(const std::string& url) {
  auto& redirects = Redirects();
  MutexLock lock(&redirects.mutex);
  return !redirects.roots.has_value() || IsBelowUrlRoot(url, *redirects.roots);
}

}  // namespace sluice
