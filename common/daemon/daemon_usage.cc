#include "common/daemon/daemon_usage.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/closest_name.h"

namespace sluice {
namespace {

using Flags = std::vector<gflags::CommandLineFlagInfo>;

// True for the flags of main.cc and of the *_flags.h headers, false for those of libraries.
// `log_dir` and `version` belong to libraries, but the daemons document and use them.
bool IsOwn(const gflags::CommandLineFlagInfo& flag) {
  return flag.name == "log_dir" || flag.name == "version" ||
         absl::EndsWith(flag.filename, "main.cc") || absl::EndsWith(flag.filename, "_flags.h");
}

Flags OwnFlags() {
  Flags flags;
  gflags::GetAllFlags(&flags);
  flags.erase(
      std::remove_if(flags.begin(), flags.end(), [](const auto& flag) { return !IsOwn(flag); }),
      flags.end());
  std::sort(flags.begin(), flags.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return flags;
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool Find(const std::string& name, gflags::CommandLineFlagInfo* flag) {
  return gflags::GetCommandLineFlagInfo(name.c_str(), flag);
}

absl::Status UnknownFlag(const std::string& program, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& flag : OwnFlags()) names.push_back(flag.name);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no flag --", name, DidYouMeanOrAll(name, names), " (", program, " --help)"));
}

// The help text of a flag. log_dir and version belong to libraries, whose descriptions do not fit
// here.
std::string Description(const gflags::CommandLineFlagInfo& flag) {
  if (flag.name == "log_dir") {
    return "folder of the logs and endpoints.log (SLUICE_LOG_DIR) (default log)";
  }
  if (flag.name == "version") return "print the version and exit";
  const bool none = flag.default_value.empty() || flag.default_value == "-1";
  return none ? flag.description
              : absl::StrCat(flag.description, " (default ", flag.default_value, ")");
}

}  // namespace

absl::StatusOr<bool> CheckDaemonFlags(int argc, char** argv) {
  const std::string program = NameOf(argc > 0 ? argv[0] : "");
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--") break;
    if (arg == "-h" || arg == "-help" || arg == "--help") return true;
    if (!absl::StartsWith(arg, "-") || arg == "-") continue;  // BeginDaemon refuses words
    const std::vector<std::string> pieces = absl::StrSplit(arg, absl::MaxSplits('=', 1));
    const std::string name = pieces[0].substr(absl::StartsWith(arg, "--") ? 2 : 1);
    gflags::CommandLineFlagInfo flag;
    if (!Find(name, &flag)) {
      const bool negated = absl::StartsWith(name, "no") && Find(name.substr(2), &flag);
      if (negated && flag.type == "bool" && pieces.size() == 1) continue;
      return UnknownFlag(program, name);
    }
    if (pieces.size() == 1 && flag.type == "bool") continue;
    if (pieces.size() == 1 && i + 1 == argc) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " has no value; give --", name, "=VALUE"));
    }
    const std::string value = pieces.size() == 2 ? pieces[1] : argv[++i];
    if (gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, "=", value, " is not a valid ",
                                                     flag.type, "; see ", program, " --help"));
    }
  }
  return false;
}

std::string DaemonHelp(const std::string& program, const std::string& usage) {
  std::string text = absl::StrCat(NameOf(program), ": ", usage, "\n\nFlags:\n");
  for (const auto& flag : OwnFlags()) {
    std::string left = absl::StrCat("  --", flag.name);
    if (flag.type != "bool") absl::StrAppend(&left, "=", flag.type);
    left.resize(std::max<size_t>(left.size() + 2, 28), ' ');
    absl::StrAppend(&text, left, Description(flag), "\n");
  }
  return text;
}

}  // namespace sluice
