// sluice logs: prints the logs of processes and jobs.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/cluster/log_files.h"
#include "cli/commands/commands.h"
#include "cli/jobs/endpoints.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/daemon/log_file.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

struct Log {
  LogReader reader;
  std::string name;  // "serverlog.1"
};

std::string Stem(const std::string& role) {
  return role == "pserver" ? "serverlog" : role == "scheduler" ? "schedulerlog" : "workerlog";
}

// Returns the log files of `folder` that match --role and --rank, ordered by name.
absl::StatusOr<std::vector<Log>> FindLogs(const ParsedCommand& command, const std::string& folder) {
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
    // An older file of a log has one more number, and belongs to the newest.
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
  std::vector<Log> logs;
  for (const auto& [key, path] : found)
    logs.push_back({LogReader(path), absl::StrCat(key.first, ".", key.second)});
  return logs;
}

// Chooses the lines that are shown.
class LineChoice {
 public:
  explicit LineChoice(const ParsedCommand& command)
      : job_id_(command.words.empty() ? "" : command.words[0]),
        // Who asks for a job wants its steps, too. Who asks how the cluster is would find nothing
        // else among them.
        steps_(!job_id_.empty() || command.Switch("steps")) {}

  bool Takes(const std::string& line) {
    if (!job_id_.empty() && jobs_.size() < kMostJobs) {
      std::string job = JobNamedIn(line);
      if (!job.empty()) jobs_.insert(std::move(job));
    }
    const bool step = !steps_ && IsStepLine(line);
    left_out_ = left_out_ || step;
    // A start separates the jobs of two runs, whose ids may be the same.
    return !step && (job_id_.empty() || IsLogStart(line) || NamesJob(line, job_id_));
  }
  // Drops the starts of runs of which no line is shown.
  void DropEmptyRuns(std::vector<std::string>* lines) const {
    if (job_id_.empty()) return;
    std::vector<std::string> kept;
    for (size_t i = 0; i < lines->size(); ++i) {
      const bool empty = i + 1 == lines->size() || IsLogStart((*lines)[i + 1]);
      if (!IsLogStart((*lines)[i]) || !empty) kept.push_back(std::move((*lines)[i]));
    }
    lines->swap(kept);
  }
  // With a job: the ids of jobs that lines named, at most kMostJobs.
  const std::set<std::string>& jobs() const { return jobs_; }
  // Whether step lines were left out since the last call.
  bool LeftOut() { return std::exchange(left_out_, false); }

 private:
  static constexpr size_t kMostJobs = 20;

  const std::string job_id_;
  const bool steps_;
  bool left_out_ = false;
  std::set<std::string> jobs_;
};

void PrintTail(const std::vector<std::string>& lines, bool left_out) {
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0 && IsLogStart(lines[i])) std::cout << "---- the process was started again ----\n";
    std::cout << lines[i] << '\n';
  }
  if (left_out) std::cout << "(lines of steps are left out; --steps shows them)\n";
}

int Logs(const ParsedCommand& command) {
  const std::string folder = LogDirOf(command);
  auto logs = FindLogs(command, folder);
  if (!logs.ok()) return ReportError(logs.status());
  if (command.Number("lines") < 0) {
    return ReportError(absl::InvalidArgumentError("--lines is negative; give 0 or more"));
  }
  LineChoice choice(command);
  const auto takes = [&choice](const std::string& line) { return choice.Takes(line); };
  const auto most = static_cast<size_t>(std::min(command.Number("lines"), 1'000'000L));
  const bool of_job = !command.words.empty();
  const bool many = logs->size() > 1;
  bool found = !of_job || most == 0;
  for (Log& log : *logs) {
    std::vector<std::string> lines = log.reader.Tail(most, takes);
    choice.DropEmptyRuns(&lines);
    const bool left_out = choice.LeftOut();
    // Most processes of a cluster may have nothing to do with a job.
    if (of_job && lines.empty()) continue;
    found = true;
    if (many) std::cout << "==> " << log.reader.path() << " <==\n";
    PrintTail(lines, left_out);
  }
  std::cout.flush();
  if (!found && !command.Switch("follow")) {
    return ReportError(absl::InvalidArgumentError(absl::StrCat(
        "no log of job ", command.words[0], ": no line in ", folder, " names it; ",
        choice.jobs().empty() ? "the logs name no jobs"
                              : absl::StrCat("they name ", absl::StrJoin(choice.jobs(), ", ")),
        " (--log_dir gives another folder)")));
  }
  // Runs until the reader of standard output goes away or a signal arrives.
  while (command.Switch("follow") && std::cout) {
    for (Log& log : *logs) {
      for (const std::string& line : log.reader.New(takes))
        std::cout << (many ? log.name + ": " : "") << line << '\n';
    }
    std::cout.flush();
    Clock::Real()->Sleep(absl::Milliseconds(200));
  }
  return kDone;
}

}  // namespace

Command LogsCommand() {
  CommandSpec spec;
  spec.name = "logs";
  spec.summary = "Prints the last lines of the logs in log_dir, or those about one job.";
  spec.only_prints = true;
  spec.words = "[JOB_ID]";
  spec.max_words = 1;
  spec.flags = {
      {"log_dir", FlagKind::kText, "DIR", "log", "folder of the logs (SLUICE_LOG_DIR)"},
      {"role", FlagKind::kText, "ROLE", "", "only logs of this role: scheduler, pserver or worker"},
      {"rank", FlagKind::kNumber, "N", "", "only logs of this rank"},
      {"lines", FlagKind::kNumber, "N", "20", "number of lines from each log"},
      {"steps", FlagKind::kBool, "", "", "also lines of steps; with JOB_ID they are always shown"},
      {"follow", FlagKind::kBool, "", "", "keep printing new lines until Ctrl-C"},
  };
  spec.examples =
      "  sluice logs --role=pserver --rank=1\n"
      "  sluice logs adult-3 --follow\n";
  return {spec, &Logs};
}

}  // namespace sluice::cli
