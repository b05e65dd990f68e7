// sluice predict: scores of a saved model, without a cluster.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/local_cluster.h"
#include "cli/progress.h"
#include "cli/watch_job.h"
#include "common/base/status_macros.h"
#include "model/predictor.h"

namespace sluice::cli {
namespace {

struct Part {
  pid_t pid = -1;
  int pipe =
      -1;  // the child's report: "examples bad_lines", newline, text of bad lines or of the error
  std::string file;
};

struct Report {
  uint64_t examples = 0, bad_lines = 0;
  std::string bad_text;
};

void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

[[noreturn]] void RunPart(PredictOptions options, int fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kJobFailed);
  const auto summary = PredictFile(options);
  if (!summary.ok()) {
    WriteAll(fd, std::string(summary.status().message()));
    _exit(absl::IsInvalidArgument(summary.status()) || absl::IsNotFound(summary.status())
              ? kBadUsage
              : kJobFailed);
  }
  WriteAll(fd, absl::StrCat(summary->examples, " ", summary->bad.count, "\n",
                            summary->bad.count > 0 ? summary->bad.Describe() : ""));
  _exit(kDone);
}

// The parts run as processes: forked before any thread exists.
absl::StatusOr<std::vector<Part>> StartParts(const PredictOptions& options) {
  std::vector<Part> parts;
  const pid_t parent = getpid();
  for (int i = 0; i < options.worker_num; ++i) {
    int fds[2];
    if (pipe(fds) != 0)
      return absl::InternalError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
    Part part;
    part.file = absl::StrCat(options.output_file, ".part-", i);
    part.pipe = fds[0];
    part.pid = fork();
    if (part.pid == 0) {
      PredictOptions own = options;
      own.part = i;
      own.output_file = part.file;
      RunPart(std::move(own), fds[1], parent);
    }
    close(fds[1]);
    if (part.pid < 0)
      return absl::InternalError(absl::StrCat("cannot start a process: ", std::strerror(errno)));
    parts.push_back(part);
  }
  return parts;
}

absl::StatusOr<Report> Finish(int number, const Part& part) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(part.pipe, buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR);) {
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
  }
  close(part.pipe);
  int status = 0;
  while (waitpid(part.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != kDone && text.empty())) {
    return absl::InternalError(
        absl::StrCat("part ", number, " of the prediction ", DescribeExit(status)));
  }
  if (WEXITSTATUS(status) == kBadUsage) return absl::InvalidArgumentError(text);
  if (WEXITSTATUS(status) != kDone) return absl::InternalError(text);
  Report report;
  const std::vector<std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 1));
  const std::vector<std::string> numbers = absl::StrSplit(lines[0], ' ');
  if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &report.examples) ||
      !absl::SimpleAtoi(numbers[1], &report.bad_lines)) {
    return absl::InternalError(absl::StrCat("part ", number, " of the prediction gave no report"));
  }
  if (lines.size() > 1) report.bad_text = lines[1];
  return report;
}

absl::Status Concatenate(const std::vector<Part>& parts, const std::string& output) {
  const std::string whole = output + ".part-all";
  std::ofstream out(whole, std::ios::binary | std::ios::trunc);
  for (const Part& part : parts) {
    std::ifstream in(part.file, std::ios::binary);
    // Inserting an empty stream would set failbit.
    if (in.peek() != std::ifstream::traits_type::eof()) out << in.rdbuf();
    if (!in) in.clear();
  }
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(whole, output, error);
  if (out && !error) return absl::OkStatus();
  std::filesystem::remove(whole, error);
  return absl::InternalError(absl::StrCat("cannot write ", output, "; is the disk full?"));
}

absl::StatusOr<Report> RunAll(const PredictOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Part> parts, StartParts(options));
  Report total;
  absl::Status status;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto report = Finish(static_cast<int>(i), parts[i]);
    if (!report.ok()) {
      status.Update(report.status());
      continue;
    }
    total.examples += report->examples;
    total.bad_lines += report->bad_lines;
    if (total.bad_text.empty()) total.bad_text = report->bad_text;
  }
  if (status.ok()) status = Concatenate(parts, options.output_file);
  std::error_code ignored;
  for (const Part& part : parts) std::filesystem::remove(part.file, ignored);
  if (!status.ok()) return status;
  return total;
}

absl::StatusOr<PredictOptions> OptionsFromFlags(const ParsedCommand& command) {
  for (const char* flag : {"model", "data", "output"}) {
    if (command.Text(flag).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag, " is missing; sluice predict --model=DIR/model --data=FILE --output=FILE"));
    }
  }
  const long workers = command.Number("worker_num");
  if (workers < 1 || workers > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--worker_num=", workers, " is not possible; give 1 to 1000"));
  }
  PredictOptions options;
  options.model_dir = command.Text("model");
  for (const std::string& list : command.All("data")) {
    for (const absl::string_view file : absl::StrSplit(list, ',', absl::SkipEmpty())) {
      options.data_files.emplace_back(file);
    }
  }
  options.output_file = command.Text("output");
  options.worker_num = static_cast<int>(workers);
  options.threads = ThreadsPerWorker(options.worker_num);
  return options;
}

int Predict(const ParsedCommand& command) {
  const auto options = OptionsFromFlags(command);
  if (!options.ok()) return ReportError(options.status());
  const auto report = RunAll(*options);
  if (!report.ok()) return ReportError(report.status());
  if (report->bad_lines > 0) {
    std::cerr << "sluice: " << WithCommas(report->bad_lines)
              << " lines are no example and got nan: " << report->bad_text << std::endl;
  }
  std::cout << "scored " << WithCommas(report->examples) << " examples into "
            << options->output_file << std::endl;
  return kDone;
}

}  // namespace

Command PredictCommand() {
  CommandSpec spec;
  spec.name = "predict";
  spec.summary = "Writes the score of each line of a data file, in input order; needs no cluster.";
  spec.flags = {
      {"model", FlagKind::kText, "DIR", "", "folder of a saved model: OUTPUT_DIR/model"},
      {"data", FlagKind::kText, "FILE", "", "files or globs, in the format of the model's job",
       true},
      {"output", FlagKind::kText, "FILE", "", "one probability a line"},
      {"worker_num", FlagKind::kNumber, "N", "1",
       "processes; the output is the same for any number"},
  };
  spec.examples =
      "  sluice predict --model=output/adult-1/model --data=test.csv --output=scores.txt "
      "--worker_num=4\n";
  return {spec, &Predict};
}

}  // namespace sluice::cli
