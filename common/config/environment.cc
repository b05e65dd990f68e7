#include "common/config/environment.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/closest_name.h"
#include "common/config/job_config.h"

namespace sluice {
namespace {

constexpr char kPrefix[] = "SLUICE_";
// Of the daemons (common/daemon/identity.h); SCHEDULER also of the commands.
constexpr const char* kOfDaemons[] = {"ADMIN_BIND", "ADVERTISE", "BIND", "CLUSTER",   "DEVICE",
                                      "INSECURE",   "LOG_DIR",   "RANK", "SCHEDULER", "ROLE"};
// Of the tests alone, which start the programs.
constexpr const char* kOfTests[] = {"BIN_DIR", "SIMULATED_BIN_DIR", "TEST_BIN_DIR", "TIME_SCALE"};

// What follows SLUICE_, in order of the alphabet.
std::vector<std::string> Known() {
  std::vector<std::string> names(std::begin(kOfDaemons), std::end(kOfDaemons));
  for (const ShortOption& option : ShortOptions())
    names.push_back(absl::AsciiStrToUpper(option.name));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::Status CheckEnvironment() {
  const std::vector<std::string> known = Known();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, kPrefix)) continue;
    const std::vector<std::string> parts = absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[1].empty()) continue;
    const std::string name = parts[0].substr(sizeof kPrefix - 1);
    if (std::count(known.begin(), known.end(), name) > 0) continue;
    if (std::count(std::begin(kOfTests), std::end(kOfTests), name) > 0) continue;
    const std::string nearest = ClosestName(name, known);
    return absl::InvalidArgumentError(absl::StrCat(
        *entry, ": there is no such variable; ",
        nearest.empty() ? absl::StrCat("there are: ", kPrefix,
                                       absl::StrJoin(known, absl::StrCat(", ", kPrefix)))
                        : absl::StrCat("did you mean '", kPrefix, nearest, "'?"),
        " (a job's other fields have --set path.to.field=value)"));
  }
  return absl::OkStatus();
}

}  // namespace sluice
