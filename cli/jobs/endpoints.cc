#include "cli/jobs/endpoints.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"

namespace sluice::cli {

std::vector<Endpoint> ReadEndpoints(const std::string& log_dir) {
  std::vector<Endpoint> endpoints;
  std::ifstream in(log_dir + "/endpoints.log");
  for (std::string line; std::getline(in, line);) {
    if (in.eof()) break;  // no newline: the line is being written
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    Endpoint e;
    // A pid of 0 or below must not pass: kill would signal a whole group of processes.
    if (words.size() < 4 || words[0] == "#" || !absl::SimpleAtoi(words[1], &e.rank) ||
        !absl::SimpleAtoi(words[3], &e.pid) || e.pid <= 0) {
      continue;
    }
    e.role = words[0];
    e.address = words[2] == "-" ? "" : words[2];
    if (words.size() > 4 && words[4] != "-") e.admin_address = words[4];
    endpoints.push_back(std::move(e));
  }
  return endpoints;
}

bool IsAlive(const Endpoint& endpoint) {
  if (kill(endpoint.pid, 0) != 0) return false;
  // The pid may belong to another program by now, and a zombie has no executable.
  std::error_code error;
  const auto path =
      std::filesystem::read_symlink(absl::StrCat("/proc/", endpoint.pid, "/exe"), error);
  const std::string name = path.filename().string();
  // The supervisor is the process that `sluice up` has left, so it runs this very program.
  if (endpoint.role == kSupervisorRole) return !error && name == "sluice";
  return !error && absl::StartsWith(name, "sluice-" + endpoint.role);
}

namespace {

// While members live, somebody may be starting the scheduler again.
constexpr absl::Duration kStartAgain = absl::Seconds(3);

// Another user's process can neither be signalled nor identified, so it does not count as gone.
bool IsGone(const Endpoint& endpoint) {
  return kill(endpoint.pid, 0) == 0 ? !IsAlive(endpoint) : errno == ESRCH;
}

}  // namespace

std::string LogDirOf(const ParsedCommand& command) { return command.TextOrVariable("log_dir"); }

absl::StatusOr<std::string> FindScheduler(const ParsedCommand& command) {
  std::string address = command.TextOrVariable("scheduler");
  std::string origin = command.Given("scheduler") ? "--scheduler" : "SLUICE_SCHEDULER";
  const std::string file = LogDirOf(command) + "/endpoints.log";
  if (address.empty()) {
    origin = file;
    for (const Endpoint& e : ReadEndpoints(LogDirOf(command))) {
      if (e.role == "scheduler") address = e.address;  // the last one started
    }
  }
  if (address.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no cluster is known: ", file,
                     " names no scheduler; start a cluster with sluice up, or give "
                     "--scheduler=HOST:PORT or the --log_dir of a running cluster"));
  }
  const auto parsed = ParseAddressList(address);
  if (parsed.ok()) return address;
  return absl::InvalidArgumentError(absl::StrCat(origin, ": ", parsed.status().message()));
}

absl::StatusOr<std::string> FindRunningScheduler(const ParsedCommand& command, Clock* clock) {
  SLUICE_ASSIGN_OR_RETURN(const std::string address, FindScheduler(command));
  const bool named = !command.TextOrVariable("scheduler").empty();
  const auto parsed = ParseAddressList(address);
  // Nothing is known about processes of another host.
  if (named || !parsed.ok() || !AllLoopback(*parsed)) return address;
  const std::string log_dir = LogDirOf(command);
  const absl::Time end = clock->Now() + kStartAgain;
  for (;;) {
    const std::vector<Endpoint> endpoints = ReadEndpoints(log_dir);
    // A scheduler that is started again keeps its address, so only the pid tells whether it runs.
    const auto serves = [&](const Endpoint& e) {
      return e.role == "scheduler" && e.address == address && !IsGone(e);
    };
    if (std::any_of(endpoints.begin(), endpoints.end(), serves)) return address;
    const auto alive = std::find_if(endpoints.begin(), endpoints.end(), IsAlive);
    if (alive == endpoints.end()) break;
    if (clock->Now() >= end) {
      return absl::UnavailableError(absl::StrCat(
          "the scheduler at ", address, ", named in ", log_dir, "/endpoints.log, has ended, but ",
          alive->role, " ", alive->rank, " (pid ", alive->pid,
          ") still runs; start the scheduler again at this address, or stop the rest with sluice "
          "down --log_dir=",
          log_dir, ", or give --scheduler=HOST:PORT"));
    }
    clock->Sleep(absl::Milliseconds(50));
  }
  return absl::UnavailableError(
      absl::StrCat("no cluster is running: the scheduler at ", address, ", named in ", log_dir,
                   "/endpoints.log, has ended; start a cluster with sluice up, or give "
                   "--scheduler=HOST:PORT"));
}

std::vector<FlagSpec> AddressFlags() {
  return {
      {"scheduler", FlagKind::kText, "HOST:PORT[,HOST:PORT...]", "",
       "address of the scheduler, or of all that may lead; default: SLUICE_SCHEDULER, then "
       "the scheduler of --log_dir"},
      {"log_dir", FlagKind::kText, "DIR", "log",
       "log folder of a cluster on this host (SLUICE_LOG_DIR)"},
  };
}

}  // namespace sluice::cli
