#include "server/service/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

// Files of /proc and of control groups report no size, so they are read by lines and not through
// Env.

// Returns the number after `name` in a file of "name number ..." lines.
std::optional<uint64_t> Field(const std::string& path, absl::string_view name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t value = 0;
    if (words.size() >= 2 && words[0] == name && absl::SimpleAtoi(words[1], &value)) return value;
  }
  return std::nullopt;
}

// Returns the number that the file consists of; nullopt for "max".
std::optional<uint64_t> Number(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &value)) return std::nullopt;
  return value;
}

// Names of files and fields in one version of control groups.
struct Version {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* cache;  // in memory.stat: what is dropped first when memory is short
};
constexpr Version kV1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                         "total_inactive_file"};
constexpr Version kV2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

uint64_t LeftInGroup(const std::string& folder, const Version& version) {
  const auto limit = Number(absl::StrCat(folder, "/", version.limit));
  const auto usage = Number(absl::StrCat(folder, "/", version.usage));
  if (!limit.has_value() || !usage.has_value()) return UINT64_MAX;
  const uint64_t cache = Field(absl::StrCat(folder, "/memory.stat"), version.cache).value_or(0);
  const uint64_t used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
}

// Returns the least that `group` and the groups above it leave. Inside a container the names may be
// those of the host, which are not mounted; the mount itself is then the container's own group.
uint64_t LeftInGroups(const std::string& root, const Version& version, std::string group) {
  uint64_t left = UINT64_MAX;
  for (;;) {
    left = std::min(left, LeftInGroup(absl::StrCat(root, version.mount, group), version));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return left;
    group.resize(slash);
  }
}

}  // namespace

uint64_t AvailableMemory(const std::string& root) {
  uint64_t available = UINT64_MAX;
  if (const auto kib = Field(root + "/proc/meminfo", "MemAvailable:")) available = *kib << 10;
  // "0::/a/b" (v2) and "7:memory:/a/b" (v1; several controllers may share a line).
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    const bool v1 = std::count(controllers.begin(), controllers.end(), "memory") > 0;
    if (!v1 && !fields[1].empty()) continue;
    available = std::min(available, LeftInGroups(root, v1 ? kV1 : kV2, fields[2]));
  }
  return available;
}

}  // namespace sluice
