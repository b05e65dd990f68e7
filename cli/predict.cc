// sluice predict: scores data with a saved model, without a cluster.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/child_process.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/exit_cleanup.h"
#include "cli/format.h"
#include "cli/local_cluster.h"
#include "cli/output_files.h"
#include "cli/progress.h"
#include "cli/score_progress.h"
#include "cli/unfinished_scores.h"
#include "cli/watch_job.h"
#include "common/base/clock.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"
#include "model/predictor.h"

namespace sluice::cli {
namespace {

struct Part {
  pid_t pid = -1;
  int pipe = -1;  // carries the child's report: ReportOf(summary), or its error message
  std::string file;
  uint64_t lines = 0;  // as the child reports
};

// Returns the counts in one line, then the bad lines that the summary names, one line each.
std::string ReportOf(const PredictSummary& summary) {
  return absl::StrCat(summary.examples, " ", summary.bad.count, " ", summary.max_bad_lines, "\n",
                      absl::StrJoin(summary.bad.first, "\n"));
}

bool ParseReport(const std::string& text, PredictSummary* summary) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const std::vector<std::string> numbers = absl::StrSplit(lines[0], ' ');
  lines.erase(lines.begin());
  if (lines == std::vector<std::string>{""}) lines.clear();
  summary->bad.first = std::move(lines);
  return numbers.size() == 3 && absl::SimpleAtoi(numbers[0], &summary->examples) &&
         absl::SimpleAtoi(numbers[1], &summary->bad.count) &&
         absl::SimpleAtoi(numbers[2], &summary->max_bad_lines);
}

void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

// The number of lines scored so far by each part, in memory that the processes share.
class SharedCounts {
 public:
  explicit SharedCounts(size_t parts) : parts_(parts) {
    void* const memory = mmap(nullptr, parts * sizeof(Count), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    counts_ = memory == MAP_FAILED ? nullptr : static_cast<Count*>(memory);
  }
  ~SharedCounts() {
    if (counts_ != nullptr) munmap(counts_, parts_ * sizeof(Count));
  }
  SharedCounts(const SharedCounts&) = delete;
  SharedCounts& operator=(const SharedCounts&) = delete;
  // Relaxed: the counts are only displayed and order nothing.
  void Set(size_t part, uint64_t lines) const {
    if (counts_ != nullptr) counts_[part].store(lines, std::memory_order_relaxed);
  }
  uint64_t Sum() const {
    uint64_t sum = 0;
    for (size_t i = 0; counts_ != nullptr && i < parts_; ++i)
      sum += counts_[i].load(std::memory_order_relaxed);
    return sum;
  }

 private:
  using Count = std::atomic<uint64_t>;  // lock-free; zeroed memory is a count of 0
  static_assert(Count::is_always_lock_free);
  const size_t parts_;
  Count* counts_;
};

[[noreturn]] void RunPart(PredictOptions options, int fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kJobFailed);
  ExitCleanup cleanup({options.output_file}, "", 0);
  const auto summary = PredictFile(options);
  if (!summary.ok()) {
    WriteAll(fd, std::string(summary.status().message()));
    _exit(absl::IsInvalidArgument(summary.status()) || absl::IsNotFound(summary.status())
              ? kBadUsage
              : kJobFailed);
  }
  WriteAll(fd, ReportOf(*summary));
  _exit(kDone);
}

// Starts one process per part. They are forked, so no thread may exist yet.
absl::StatusOr<std::vector<Part>> StartParts(const PredictOptions& options,
                                             const std::vector<std::string>& files,
                                             const SharedCounts& counts, ExitCleanup* cleanup) {
  std::vector<Part> parts;
  const pid_t parent = getpid();
  for (int i = 0; i < options.worker_num; ++i) {
    int fds[2];
    if (pipe(fds) != 0)
      return absl::InternalError(absl::StrCat("cannot create a pipe: ", std::strerror(errno)));
    Part part;
    part.file = files[i];
    part.pipe = fds[0];
    part.pid = fork();
    if (part.pid == 0) {
      PredictOptions own = options;
      own.part = i;
      own.output_file = part.file;
      own.in_place = true;
      own.progress = [&counts, i](uint64_t lines) { counts.Set(i, lines); };
      RunPart(std::move(own), fds[1], parent);
    }
    close(fds[1]);
    if (part.pid < 0)
      return absl::InternalError(absl::StrCat("cannot start a process: ", std::strerror(errno)));
    cleanup->SetChild(i, part.pid);
    parts.push_back(part);
  }
  return parts;
}

// Reads until the part closes its pipe, and shows the progress meanwhile.
std::string ReadReport(const Part& part, const SharedCounts& counts, ScoreProgress* progress) {
  constexpr int kLookMs = 250;
  std::string text;
  char buffer[4096];
  while (true) {
    pollfd pipe = {part.pipe, POLLIN, 0};
    const int ready = poll(&pipe, 1, kLookMs);
    progress->Update(counts.Sum());
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t n = read(part.pipe, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

absl::StatusOr<PredictSummary> Finish(int number, const Part& part, const SharedCounts& counts,
                                      ScoreProgress* progress, ExitCleanup* cleanup) {
  const std::string text = ReadReport(part, counts, progress);
  close(part.pipe);
  siginfo_t ended;
  while (waitid(P_PID, part.pid, &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  cleanup->SetChild(number, 0);  // after waitpid the pid may belong to another process
  int status = 0;
  while (waitpid(part.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != kDone && text.empty())) {
    return absl::InternalError(
        absl::StrCat("part ", number, " of the prediction ", DescribeExit(status)));
  }
  if (WEXITSTATUS(status) == kBadUsage) return absl::InvalidArgumentError(text);
  if (WEXITSTATUS(status) != kDone) return absl::InternalError(text);
  PredictSummary summary;
  if (ParseReport(text, &summary)) return summary;
  return absl::InternalError(absl::StrCat("part ", number, " of the prediction gave no report"));
}

// Appends the part's file to `out`. DATA_LOSS unless it has all the lines that were reported.
absl::Status Append(const Part& part, std::FILE* out, const std::string& output) {
  std::FILE* in = std::fopen(part.file.c_str(), "rb");
  if (in == nullptr) {
    return absl::DataLossError(absl::StrCat("cannot open the part ", part.file, ": ",
                                            std::strerror(errno), "; run predict again"));
  }
  std::vector<char> buffer(1 << 16);
  uint64_t lines = 0;
  bool written = true;
  size_t n;
  while (written && (n = std::fread(buffer.data(), 1, buffer.size(), in)) > 0) {
    lines += std::count(buffer.data(), buffer.data() + n, '\n');
    written = std::fwrite(buffer.data(), 1, n, out) == n;
  }
  const bool read = std::ferror(in) == 0;
  std::fclose(in);
  if (!written) {
    return absl::InternalError(
        absl::StrCat("cannot write ", output, ": ", std::strerror(errno), "; is the disk full?"));
  }
  if (read && lines == part.lines) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the part ", part.file, " has ", lines, " of ",
                                          part.lines, " lines; is the disk full?"));
}

// Writes the parts straight into a pipe or device. A regular file appears only when complete: it is
// `whole`, open as `whole_fd`.
absl::Status Concatenate(const std::vector<Part>& parts, const OutputTarget& target,
                         const std::string& whole, int whole_fd, bool replace) {
  const std::string& written = target.in_place ? target.path : whole;
  std::FILE* out =
      target.in_place ? std::fopen(written.c_str(), "wb") : ::fdopen(dup(whole_fd), "wb");
  if (out == nullptr) {
    return absl::InternalError(absl::StrCat("cannot open ", written, ": ", std::strerror(errno),
                                            "; check its folder and space"));
  }
  absl::Status status;
  for (const Part& part : parts) {
    if (status.ok()) status = Append(part, out, target.path);
  }
  const bool finished = std::fclose(out) == 0;
  if (!status.ok()) return status;
  if (finished) {
    return target.in_place ? absl::OkStatus() : PutInPlace(whole, target.path, replace);
  }
  return absl::InternalError(absl::StrCat("cannot close ", target.path, ": ", std::strerror(errno),
                                          "; is the disk full?"));
}

absl::StatusOr<PredictSummary> RunHere(const PredictOptions& options, ScoreProgress* progress) {
  const OutputTarget target = ResolveOutput(options.output_file);
  std::vector<std::string> files;
  if (!target.in_place) files.push_back(UnfinishedName(target.path));
  ExitCleanup cleanup(std::move(files), "", 0);
  PredictOptions own = options;
  own.progress = [progress](uint64_t lines) { progress->Update(lines); };
  return PredictFile(own);
}

// Makes a temporary folder for the parts when the output is a pipe or device, because they cannot
// be next to it.
absl::StatusOr<std::string> PartsFolder() {
  const char* const set = std::getenv("TMPDIR");
  std::string folder =
      absl::StrCat(set != nullptr && *set != 0 ? set : "/tmp", "/sluice-predict-XXXXXX");
  if (mkdtemp(folder.data()) != nullptr) return folder;
  return absl::InternalError(absl::StrCat("cannot create the folder ", folder, ": ",
                                          std::strerror(errno),
                                          "; set TMPDIR to a writable folder"));
}

absl::StatusOr<PredictSummary> RunParts(const PredictOptions& options, ScoreProgress* progress) {
  const OutputTarget target = ResolveOutput(options.output_file);
  std::string folder;
  if (target.in_place) {
    SLUICE_ASSIGN_OR_RETURN(folder, PartsFolder());
  }
  // The pid in these names keeps them apart from the files of other processes.
  const std::string prefix =
      PartPrefix(target.in_place ? folder + "/scores" : target.path, getpid());
  std::vector<std::string> files;
  for (int i = 0; i < options.worker_num; ++i) files.push_back(absl::StrCat(prefix, i));
  const std::string whole = prefix + kJoinedParts;
  std::vector<std::string> all = files;
  all.push_back(whole);
  // Kills the remaining parts and removes their files on every way out.
  ExitCleanup cleanup(std::move(all), folder, files.size());

  int whole_fd = -1;
  if (!target.in_place) {
    SLUICE_ASSIGN_OR_RETURN(whole_fd, ClaimUnfinished(whole));
  }

  const SharedCounts counts(files.size());
  SLUICE_ASSIGN_OR_RETURN(std::vector<Part> parts, StartParts(options, files, counts, &cleanup));
  PredictSummary total;
  absl::Status status;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto report = Finish(static_cast<int>(i), parts[i], counts, progress, &cleanup);
    if (!report.ok()) {
      status.Update(report.status());
      continue;
    }
    parts[i].lines = report->examples + report->bad.count;
    total.examples += report->examples;
    total.bad.Merge(report->bad);
    total.max_bad_lines = report->max_bad_lines;
  }
  if (status.ok()) status = CheckScored(options, total);
  if (status.ok()) status = Concatenate(parts, target, whole, whole_fd, options.replace);
  if (!status.ok()) return status;
  return total;
}

// Returns whether the scores go to standard output; the summary then goes to standard error.
bool IsStdout(const std::string& output) {
  struct stat file, standard;
  return stat(output.c_str(), &file) == 0 && fstat(STDOUT_FILENO, &standard) == 0 &&
         file.st_dev == standard.st_dev && file.st_ino == standard.st_ino;
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
        absl::StrCat("--worker_num=", workers, " is out of range; give 1 to 1000"));
  }
  if (command.Text("output") == "-") {
    return absl::InvalidArgumentError(
        "--output=- is not supported; give --output=/dev/stdout for standard output");
  }
  if (command.Given("max_bad_lines") && command.Number("max_bad_lines") < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_bad_lines=", command.Number("max_bad_lines"), " is out of range; give 0 or more"));
  }
  PredictOptions options;
  options.env = Env::Real();
  options.model_dir = command.Text("model");
  for (const std::string& list : command.All("data")) {
    for (const absl::string_view file : absl::StrSplit(list, ',', absl::SkipEmpty())) {
      options.data_files.emplace_back(file);
    }
  }
  if (std::count(options.data_files.begin(), options.data_files.end(), "-") > 0 && workers > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--worker_num=", workers,
                     " with --data=-: only one process can read standard input; leave "
                     "--worker_num out, or give a file"));
  }
  options.output_file = command.Text("output");
  options.id_column = command.Text("id_column");
  options.replace = command.Switch("overwrite");
  if (command.Given("max_bad_lines"))
    options.max_bad_lines = static_cast<uint64_t>(command.Number("max_bad_lines"));
  options.worker_num = static_cast<int>(workers);
  options.threads = ThreadsPerWorker(options.worker_num);
  return options;
}

// Refuses an output that would replace an input, or another file without --overwrite.
// REQUIRES: FixInput has listed the data files in `options`.
absl::Status CheckOutput(const PredictOptions& options) {
  std::vector<InputFile> inputs = FilesOfModel(options.model_dir, options.env);
  for (const std::string& file : options.data_files) {
    inputs.push_back(file == "-" ? InputFile{"standard input", "/dev/stdin"}
                                 : InputFile{"a file of --data", file});
  }
  const OutputTarget target = ResolveOutput(options.output_file);
  // A terminal or pipe can be input and output at once.
  if (target.in_place) return absl::OkStatus();
  return CheckOutputFile("--output", options.output_file, options.replace, inputs, options.env);
}

// Prints a note for each file that occurs more than once. This is not an error: it may be intended,
// or patterns may overlap.
void NoteFilesNamedAgain(const PredictOptions& options) {
  std::vector<std::string> files = options.data_files;
  std::sort(files.begin(), files.end());
  for (auto again = std::adjacent_find(files.begin(), files.end()); again != files.end();
       again = std::adjacent_find(again, files.end())) {
    const std::string file = *again;
    const auto end = std::find_if(again, files.end(), [&](const auto& f) { return f != file; });
    std::cerr << "note: --data names " << file << " " << (end - again)
              << " times; it is scored each time" << std::endl;
    again = end;
  }
}

int Predict(const ParsedCommand& command) {
  auto options = OptionsFromFlags(command);
  if (!options.ok()) return ReportError(options.status());
  const auto mode = ParseProgressMode(command.Text("progress"), isatty(STDERR_FILENO) == 1);
  if (!mode.ok()) return ReportError(mode.status());
  if (const absl::Status model = ReadManifest(options->model_dir, Env::Real()).status();
      !model.ok())
    return ReportError(model);
  // This comes before the parts start, so that all of them read the same state of the files.
  if (const absl::Status input = FixInput(&*options); !input.ok()) return ReportError(input);
  if (const absl::Status output = CheckOutput(*options); !output.ok()) return ReportError(output);
  NoteFilesNamedAgain(*options);
  const bool scores_on_stdout = IsStdout(options->output_file);
  // Progress goes to standard error, because the scores may go to standard output.
  ScoreProgress progress(*mode, Clock::Real(), &std::cerr);
  const auto summary =
      options->worker_num == 1 ? RunHere(*options, &progress) : RunParts(*options, &progress);
  progress.Clear();
  if (!summary.ok()) return ReportError(summary.status());
  const OutputTarget target = ResolveOutput(options->output_file);
  if (!target.in_place) RemoveUnfinishedScores(target.path, Env::Real());
  const BadLines& bad = summary->bad;
  if (bad.count > 0) {
    std::cerr << "sluice: " << Counted(bad.count, "line") << (bad.count == 1 ? " is" : " are")
              << " malformed and scored nan: " << bad.Describe() << std::endl;
  }
  (scores_on_stdout ? std::cerr : std::cout) << "scored " << Counted(summary->examples, "example")
                                             << " into " << options->output_file << std::endl;
  return kDone;
}

}  // namespace

Command PredictCommand() {
  CommandSpec spec;
  spec.name = "predict";
  spec.summary = "Writes the score of each line of a data file, in input order; needs no cluster.";
  spec.flags = {
      {"model", FlagKind::kText, "DIR", "", "folder of a saved model: OUTPUT_DIR/model (required)"},
      {"data", FlagKind::kText, "FILE", "",
       "files or globs, in the format of the model's job; one named twice is scored twice; - is "
       "standard input (required)",
       true},
      {"output", FlagKind::kText, "FILE", "",
       "file for one probability per line; it is replaced only when all lines are scored "
       "(required)"},
      {"id_column", FlagKind::kText, "NAME", "",
       "write this column of the data and a tab before each probability"},
      {"overwrite", FlagKind::kBool, "", "", "replace --output when it exists"},
      {"worker_num", FlagKind::kNumber, "N", "1",
       "number of processes; the output does not depend on it"},
      {"max_bad_lines", FlagKind::kNumber, "N", "",
       "fail when more lines are malformed; default: the limit of the model's job"},
      {"progress", FlagKind::kText, "auto|live|plain", "auto",
       "one live line, or plain lines, on standard error"},
  };
  spec.examples =
      "  sluice predict --model=output/adult-1/model --data=test.csv --output=scores.txt "
      "--worker_num=4\n"
      "  zcat test.csv.gz | sluice predict --model=M --data=- --id_column=user "
      "--output=/dev/stdout\n";
  return {spec, &Predict};
}

}  // namespace sluice::cli
