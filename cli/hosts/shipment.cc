#include "cli/hosts/shipment.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/cluster/local_cluster.h"
#include "cli/hosts/own_folder.h"
#include "cli/jobs/resume_hint.h"
#include "cli/screen/format.h"
#include "common/base/env.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// Each has a copy of the archive in memory.
constexpr int kMostSendings = 8;
constexpr const char* kPrograms[] = {"sluice", "sluice-scheduler", "sluice-pserver",
                                     "sluice-worker"};
constexpr char kHasIt[] = "sluice-shipment: here", kWantsIt[] = "sluice-shipment: send";

// The output of a command of sh here.
absl::StatusOr<std::string> OutputOf(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return absl::InternalError(std::strerror(errno));
  std::string text;
  char bytes[64 << 10];
  for (size_t n; (n = fread(bytes, 1, sizeof(bytes), pipe)) > 0;) text.append(bytes, n);
  if (pclose(pipe) != 0) return absl::InternalError(absl::StrCat("failed here: ", command));
  return text;
}

// The most that goes with a script. Whoever keeps data beside it would otherwise send them.
constexpr size_t kMostScriptFiles = 5000;
constexpr uint64_t kMostScriptBytes = 64 << 20;

// Adds the regular files below `folder`, but for hidden ones and compiled Python, by their names
// below `name`.
absl::Status AddFolder(const std::string& folder, const std::string& name,
                       std::map<std::string, std::string>* files) {
  std::error_code error;
  uint64_t bytes = 0;
  size_t count = 0;
  fs::recursive_directory_iterator at(folder, error), end;
  for (; !error && at != end; at.increment(error)) {
    const std::string own = at->path().filename().string();
    if (own[0] == '.' || own == "__pycache__") {
      at.disable_recursion_pending();
      continue;
    }
    if (!at->is_regular_file(error)) continue;
    bytes += at->file_size(error);
    if (++count > kMostScriptFiles || bytes > kMostScriptBytes) {
      return absl::InvalidArgumentError(absl::StrCat("--ship sends the folder of the program, and ",
                                                     folder, " has more than ", kMostScriptFiles,
                                                     " files or ", ByteCount(kMostScriptBytes),
                                                     "; put the program into a folder of its own"));
    }
    // By the names that lead to it: what links lead to may be outside of the folder.
    (*files)[absl::StrCat(name, "/", at->path().lexically_relative(folder).string())] =
        at->path().string();
  }
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read ", folder, " to send it: ", error.message()));
}

// Adds what a Python program needs, with the libraries of the package.
absl::Status AddProgram(const std::string& programs, const std::string& script,
                        std::map<std::string, std::string>* files) {
  const std::string package = programs + "/../python/sluice";
  std::error_code error;
  if (!fs::exists(package, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ship with --program: the package sluice is not beside the programs in ",
                     programs, "; install it on the hosts, and leave --ship out"));
  }
  SLUICE_RETURN_IF_ERROR(AddFolder(package, "python/sluice", files));
  return AddFolder(fs::path(script).parent_path().string(), "script", files);
}

std::string FolderOnHost(const std::string& digest) {
  return absl::StrCat("\"$HOME\"/.cache/sluice/", digest);
}

}  // namespace

std::vector<std::string> LibrariesToShip(const std::string& loader_output) {
  std::vector<std::string> libraries;
  for (const absl::string_view line : absl::StrSplit(loader_output, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() < 3 || words[1] != "=>" || !absl::StartsWith(words[2], "/")) continue;
    const absl::string_view name = words[0];
    bool of_host = absl::StartsWith(name, "ld-linux") || absl::StartsWith(name, "libcuda") ||
                   absl::StartsWith(name, "libcublas") || absl::StartsWith(name, "libnv");
    for (const char* part :
         {"libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libresolv.so"}) {
      of_host = of_host || absl::StartsWith(name, part);
    }
    if (!of_host) libraries.emplace_back(words[2]);
  }
  return libraries;
}

absl::StatusOr<Shipment> PackShipment(const std::string& folder, const std::string& script) {
  SLUICE_ASSIGN_OR_RETURN(const auto own, OwnFolder::Make("ship"));
  std::map<std::string, std::string> files;  // where they are, by their names in the shipment
  for (const char* program : kPrograms) {
    const std::string file = absl::StrCat(folder, "/", program);
    files[absl::StrCat("bin/", program)] = file;
    SLUICE_ASSIGN_OR_RETURN(const std::string loaded,
                            OutputOf(absl::StrCat("LD_TRACE_LOADED_OBJECTS=1 ", ShellWord(file))));
    for (const std::string& library : LibrariesToShip(loaded)) {
      const std::string name = fs::path(library).filename().string();
      // The C++ runtime needs a C library of its age; a host may have a better one.
      const bool of_gcc = absl::StartsWith(name, "libstdc++") || absl::StartsWith(name, "libgcc_s");
      files[absl::StrCat(of_gcc ? "lib/gcc/" : "lib/", name)] = library;
    }
  }
  if (!script.empty()) SLUICE_RETURN_IF_ERROR(AddProgram(folder, script, &files));
  Sha256 digest;
  std::error_code error;
  for (const auto& [name, file] : files) {
    const fs::path link = fs::path(own->path()) / name;
    fs::create_directories(link.parent_path(), error);
    fs::create_symlink(fs::absolute(file, error), link, error);
    SLUICE_ASSIGN_OR_RETURN(const std::string content, Env::Real()->ReadFile(file));
    const std::string head = absl::StrCat(name, "\n", content.size(), "\n");
    digest.Update(head.data(), head.size());
    digest.Update(content.data(), content.size());
  }
  Shipment shipment;
  shipment.digest = digest.Finish();
  SLUICE_ASSIGN_OR_RETURN(
      shipment.archive,
      OutputOf(absl::StrCat("tar -C ", ShellWord(own->path()),
                            " --owner=0 --group=0 -chf - bin lib",
                            script.empty() ? "" : " python script", " | gzip -1")));
  return shipment;
}

std::string ShippedGuardCommand(const std::string& digest) {
  return absl::StrCat(
      "echo; d=", FolderOnHost(digest), "; o=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; ",
      "export LD_LIBRARY_PATH=\"$d/lib:$d/lib/gcc$o\"; ",
      // With an older C library, the host's own C++ runtime.
      "\"$d/bin/sluice\" --version >/dev/null 2>&1 || export LD_LIBRARY_PATH=\"$d/lib$o\"; ",
      "\"$d/bin/sluice\" --version && exec \"$d/bin/sluice\" host-guard");
}

absl::Status Ship(const std::vector<HostSpec>& hosts, const Shipment& shipment, HostLinks* links,
                  Clock* clock, const std::function<void(const std::string&)>& note) {
  // The folder takes its name when it is complete. `ls -t` has the newest first.
  const std::string command = absl::StrCat(
      // A login script may print a line without its end.
      "echo; d=", FolderOnHost(shipment.digest), "; if [ -d \"$d\" ]; then touch \"$d\"; echo ",
      "'", kHasIt, "'; exit 0; fi; echo '", kWantsIt,
      "'; umask 077; mkdir -p \"$HOME/.cache/sluice\" && p=\"$d.part.$$\" && mkdir \"$p\" && ",
      "{ tar -xzf - -C \"$p\" && mv -T \"$p\" \"$d\" || { rm -rf \"$p\"; [ -d \"$d\" ]; }; } && ",
      "cd \"$HOME/.cache/sluice\" && ls -t | grep -v '[.]part[.]' | tail -n +4 | ",
      "while read -r old; do rm -rf \"./$old\"; done; ",
      // A launch that was killed while it sent has left such a folder.
      "find . -maxdepth 1 -name '*.part.*' -mtime +0 -exec rm -rf {} +");
  struct Delivery {
    std::unique_ptr<HostLink> link;
    bool wants = false, sent = false;
    std::optional<LinkEnd> end;
  };
  std::vector<Delivery> deliveries;
  for (const HostSpec& host : hosts) {
    Delivery one;
    SLUICE_ASSIGN_OR_RETURN(one.link, links->Open(host, command, ""));
    deliveries.push_back(std::move(one));
  }
  const auto open = [](const Delivery& one) { return !one.end.has_value(); };
  while (std::any_of(deliveries.begin(), deliveries.end(), open)) {
    if (StopIsPending()) return absl::CancelledError("interrupted");
    for (size_t i = 0; i < deliveries.size(); ++i) {
      Delivery& one = deliveries[i];
      if (one.end.has_value()) continue;
      for (const std::string& line : one.link->Lines()) {
        one.wants = one.wants || line == kWantsIt;
      }
      const auto under_way =
          std::count_if(deliveries.begin(), deliveries.end(),
                        [](const Delivery& other) { return other.sent && !other.end.has_value(); });
      if (one.wants && !one.sent && under_way < kMostSendings) {
        one.sent = true;
        note(absl::StrCat("sends the programs to ", hosts[i].name, " (",
                          ByteCount(shipment.archive.size()), ")"));
        one.link->Send(shipment.archive);
        one.link->EndInput();
      }
      one.end = one.link->Ended();
    }
    clock->Sleep(absl::Milliseconds(10));
  }
  std::vector<std::string> problems;
  for (size_t i = 0; i < deliveries.size(); ++i) {
    const LinkEnd& end = *deliveries[i].end;
    if (end.wait_status == 0) continue;
    problems.push_back(absl::StrCat(hosts[i].name, " ", ExplainLinkEnd(hosts[i], end)));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("nothing was started, because of ", Counted(problems.size(), "problem"),
                   " on the hosts:\n  ", absl::StrJoin(problems, "\n  ")));
}

}  // namespace sluice::cli
