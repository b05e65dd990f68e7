// sluice logs: prints the logs of processes and jobs.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/child_process.h"
#include "cli/commands/commands.h"
#include "cli/jobs/endpoints.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

struct LogFile {
  std::string path;
  std::string name;  // "serverlog.1"
  std::streamoff shown = 0;
};

std::string Stem(const std::string& role) {
  return role == "pserver" ? "serverlog" : role == "scheduler" ? "schedulerlog" : "workerlog";
}

// Returns the log files of `folder` that match --role and --rank, ordered by name.
absl::StatusOr<std::vector<LogFile>> FindLogs(const ParsedCommand& command,
                                              const std::string& folder) {
  const std::string role = command.Text("role");
  if (!role.empty() && role != "scheduler" && role != "pserver" && role != "worker") {
    return absl::InvalidArgumentError(
        absl::StrCat("--role=", role, " is unknown; give scheduler, pserver or worker"));
  }
  std::map<std::pair<std::string, int>, std::string> found;  // ordered by stem and rank
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const size_t dot = name.rfind('.');
    int rank = 0;
    if (dot == std::string::npos || !absl::SimpleAtoi(name.substr(dot + 1), &rank)) continue;
    const std::string stem = name.substr(0, dot);
    if (stem != "schedulerlog" && stem != "serverlog" && stem != "workerlog") continue;
    if (!role.empty() && stem != Stem(role)) continue;
    if (command.Given("rank") && rank != command.Number("rank")) continue;
    found[{stem, rank}] = entry.path().string();
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read the log folder ", folder, ": ", error.message(),
                     "; give the --log_dir of a launch or a cluster (default: log, in the folder "
                     "where it was started)"));
  }
  if (found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no log in ", folder,
                     " matches; check --log_dir, --role and --rank (sluice status shows the log "
                     "files of other hosts)"));
  }
  std::vector<LogFile> files;
  for (const auto& [key, path] : found)
    files.push_back({path, absl::StrCat(key.first, ".", key.second), 0});
  return files;
}

// Prints the complete lines after position `shown`.
void PrintNew(LogFile* file, bool with_name) {
  std::ifstream in(file->path, std::ios::binary);
  in.seekg(file->shown);
  std::string line;
  // A line without an end is still being written. It is printed when it is complete.
  while (std::getline(in, line) && !in.eof()) {
    file->shown += static_cast<std::streamoff>(line.size()) + 1;
    std::cout << (with_name ? file->name + ": " : "") << line << '\n';
  }
  std::cout.flush();
}

// Returns the error for a job that has no log.
absl::Status NoJobLog(const ParsedCommand& command, const absl::Status& why) {
  const std::string log_dir = LogDirOf(command);
  if (fs::is_directory(absl::StrCat(log_dir, "/", command.words[0])) ||
      !FindLogs(command, log_dir).ok()) {
    return why;
  }
  const std::string flag = log_dir == "log" ? "" : absl::StrCat(" --log_dir=", log_dir);
  return absl::InvalidArgumentError(
      absl::StrCat("no log of job ", command.words[0], ": it has no folder in ", log_dir,
                   "; a job of sluice launch logs into log_dir itself: sluice logs", flag,
                   " (sluice status lists the jobs of a cluster)"));
}

int Logs(const ParsedCommand& command) {
  std::string folder = LogDirOf(command);
  if (!command.words.empty()) {
    // The word becomes part of a path, which must not lead out of the log folder.
    if (absl::StrContains(command.words[0], '/')) {
      return ReportError(absl::InvalidArgumentError(
          absl::StrCat("'", command.words[0], "' is not a job id (sluice status lists the ids)")));
    }
    absl::StrAppend(&folder, "/", command.words[0]);
  }
  auto files = FindLogs(command, folder);
  if (!files.ok()) {
    return ReportError(command.words.empty() ? files.status() : NoJobLog(command, files.status()));
  }
  const bool many = files->size() > 1;
  if (command.Number("lines") < 0) {
    return ReportError(absl::InvalidArgumentError("--lines is negative; give 0 or more"));
  }
  for (LogFile& file : *files) {
    std::error_code error;
    // The size is taken before the tail is read: lines that come in between are shown twice rather
    // than never.
    file.shown = static_cast<std::streamoff>(fs::file_size(file.path, error));
    const std::string tail =
        TailOfFile(file.path, static_cast<int>(std::min(command.Number("lines"), 1'000'000L)));
    if (many) std::cout << "==> " << file.path << " <==\n";
    if (!tail.empty()) std::cout << tail << '\n';
  }
  std::cout.flush();
  // Runs until the reader of standard output goes away or a signal arrives.
  while (command.Switch("follow") && std::cout) {
    for (LogFile& file : *files) PrintNew(&file, many);
    Clock::Real()->Sleep(absl::Milliseconds(200));
  }
  return kDone;
}

}  // namespace

Command LogsCommand() {
  CommandSpec spec;
  spec.name = "logs";
  spec.summary = "Prints the last lines of the logs in log_dir, or of the logs of one job.";
  spec.words = "[JOB_ID]";
  spec.max_words = 1;
  spec.flags = {
      {"log_dir", FlagKind::kText, "DIR", "log", "folder of the logs (SLUICE_LOG_DIR)"},
      {"role", FlagKind::kText, "ROLE", "", "only logs of this role: scheduler, pserver or worker"},
      {"rank", FlagKind::kNumber, "N", "", "only logs of this rank"},
      {"lines", FlagKind::kNumber, "N", "50", "number of lines from each log"},
      {"follow", FlagKind::kBool, "", "", "keep printing new lines until Ctrl-C"},
  };
  spec.examples =
      "  sluice logs --role=pserver --rank=1\n"
      "  sluice logs adult-3 --follow\n";
  return {spec, &Logs};
}

}  // namespace sluice::cli
