// sluice data gen: writes seeded data of any size, whose best possible AUC is known.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cli/commands/data_commands.h"
#include "cli/commands/exit_cleanup.h"
#include "cli/jobs/output_files.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/format.h"
#include "common/base/clock.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "model/data/click_files.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<uint64_t> NumberBetween(const ParsedCommand& command, const std::string& flag,
                                       int64_t least, int64_t most) {
  const long value = command.Number(flag);
  if (value >= least && value <= most) return static_cast<uint64_t>(value);
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", command.Text(flag),
                                                 " is out of range; give ", least, " to ", most));
}

absl::StatusOr<double> RealBetween(const ParsedCommand& command, const std::string& flag,
                                   double least, double most) {
  double value;
  if (absl::SimpleAtod(command.Text(flag), &value) && value >= least && value <= most) return value;
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", command.Text(flag),
                                                 " is out of range; give a number from ", least,
                                                 " to ", most));
}

absl::Status ReadDataFlags(const ParsedCommand& command, ClickFiles* files) {
  constexpr int64_t kMost = int64_t{1} << 50;
  for (const char* flag : {"examples", "output"}) {
    if (command.Text(flag).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag, " is missing; sluice data gen --examples=1000000 --output=train.tsv"));
    }
  }
  if (command.Text("format") != "criteo") {
    return absl::InvalidArgumentError(absl::StrCat("--format=", command.Text("format"),
                                                   " is unknown; the only format is criteo"));
  }
  SLUICE_ASSIGN_OR_RETURN(files->examples, NumberBetween(command, "examples", 1, kMost));
  SLUICE_ASSIGN_OR_RETURN(files->skip, NumberBetween(command, "skip", 0, kMost));
  SLUICE_ASSIGN_OR_RETURN(files->data.seed, NumberBetween(command, "seed", 0, INT64_MAX));
  SLUICE_ASSIGN_OR_RETURN(files->data.zipf, RealBetween(command, "zipf", 0.01, 5));
  SLUICE_ASSIGN_OR_RETURN(files->data.positive_rate,
                          RealBetween(command, "positive_rate", 0.001, 0.999));
  if (command.Given("cardinality")) {
    SLUICE_ASSIGN_OR_RETURN(files->data.cardinality,
                            NumberBetween(command, "cardinality", 2, int64_t{1} << 31));
  }
  if (command.Switch("gzip") && command.Switch("zstd")) {
    return absl::InvalidArgumentError("--gzip and --zstd exclude each other; give one of them");
  }
  if (command.Switch("gzip")) files->compression = Compression::kGzip;
  if (command.Switch("zstd")) files->compression = Compression::kZstd;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  files->threads = static_cast<int>(cores);
  if (command.Given("threads")) {
    SLUICE_ASSIGN_OR_RETURN(files->threads, NumberBetween(command, "threads", 1, 1024));
  }
  return absl::OkStatus();
}

// Refuses part files of an earlier run that this run would not replace: readers of the folder would
// take them for part of this data.
// Makes the folder where it is missing, and sets *made to its name then.
absl::Status CheckPartsFolder(const std::string& folder, const std::vector<std::string>& paths,
                              std::string* made) {
  std::error_code error;
  if (fs::create_directories(folder, error)) *made = folder;
  // A file of that name also ends here.
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot create the folder --output=", folder, ": ", error.message(),
                     "; with --files above 1 the output is a folder"));
  }
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (entry.path().filename().string().rfind("part-", 0) != 0) continue;
    if (std::find(paths.begin(), paths.end(), path) != paths.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " exists and would be read as part of this data; remove it or give another --output"));
  }
  return absl::OkStatus();
}

absl::Status ReadOutputFlags(const ParsedCommand& command, ClickFiles* files,
                             std::string* made_folder) {
  SLUICE_ASSIGN_OR_RETURN(const uint64_t count, NumberBetween(command, "files", 1, 100000));
  if (count > files->examples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--files=", count, " is more than --examples=", files->examples, "; give at most as many"));
  }
  const std::string output = command.Text("output");
  const char* const suffix = SuffixOf(files->compression);
  std::error_code ignored;
  // A folder that exists, or a name that ends with a slash, gets a part file even when it is the
  // only one.
  const bool folder = count > 1 || fs::is_directory(output, ignored) || output.back() == '/';
  if (count > 1 && output == kStandardOutput) {
    return absl::InvalidArgumentError(
        "--output=- is one stream, and --files gives several files; leave one of them out");
  }
  if (!folder || output == kStandardOutput) {
    files->paths = {output};
    return absl::OkStatus();
  }
  for (uint64_t f = 0; f < count; ++f) {
    files->paths.push_back(
        (fs::path(output) / absl::StrFormat("part-%05d.tsv%s", f, suffix)).string());
  }
  return CheckPartsFolder(output, files->paths, made_folder);
}

std::string Megabytes(uint64_t bytes) {
  return absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6);
}

}  // namespace

int GenerateData(const ParsedCommand& command) {
  ClickFiles files;
  absl::Status status = ReadDataFlags(command, &files);
  std::string made_folder;
  if (status.ok()) status = ReadOutputFlags(command, &files, &made_folder);
  files.replace = command.Switch("overwrite");
  const bool standard = files.paths.size() == 1 && files.paths[0] == kStandardOutput;
  // All outputs are checked before the first is written: the data may take hours.
  for (size_t f = 0; status.ok() && !standard && f < files.paths.size(); ++f)
    status = CheckOutputFile("--output", files.paths[f], files.replace, {}, Env::Real());
  if (!status.ok()) return ReportError(status);
  // These are the names under which WriteClickFiles writes until a file is whole.
  std::vector<std::string> unfinished, outputs;
  for (const std::string& path : files.paths) {
    outputs.push_back(standard ? path : ResolveOutput(path).path);
    unfinished.push_back(UnfinishedName(outputs.back()));
  }
  // Some of the files alone would be read as the whole data.
  ExitCleanup cleanup(std::move(unfinished), std::move(outputs), made_folder);
  files.on_finished = [&cleanup](size_t f) { cleanup.Made(f); };
  const absl::Time start = Clock::Real()->Now();
  const auto summary = WriteClickFiles(files);
  if (!summary.ok()) return ReportError(summary.status());
  cleanup.Keep();
  const double seconds = absl::ToDoubleSeconds(Clock::Real()->Now() - start);
  const bool packed = files.compression != Compression::kNone;
  struct stat info;
  // The data may go to standard output, and then this text must not.
  const bool piped =
      standard || (stat(files.paths[0].c_str(), &info) == 0 && !S_ISREG(info.st_mode));
  (piped ? std::cerr : std::cout)
      << "wrote " << Counted(files.examples, "example") << " into " << files.paths[0]
      << (files.paths.size() > 1 ? absl::StrCat(" ... (", files.paths.size(), " files)") : "")
      << ": " << Megabytes(summary->text_bytes)
      << (packed ? ", compressed " + Megabytes(summary->file_bytes) : "")
      << absl::StrFormat(", %.0f MB/s\n", static_cast<double>(summary->text_bytes) / 1e6 / seconds)
      << absl::StrFormat("positive rate %.4f; best possible: AUC %.4f, log loss %.4f\n",
                         summary->sums.positive_rate(), summary->sums.auc(),
                         summary->sums.log_loss());
  return kDone;
}

std::vector<FlagSpec> GenerateDataFlags() {
  return {
      {"examples", FlagKind::kNumber, "N", "", "total number of lines in all files (required)"},
      {"output", FlagKind::kText, "FILE|DIR", "",
       "a file, \"-\" for standard output, or with --files the folder for part-00000.tsv, ... "
       "(required)"},
      {"files", FlagKind::kNumber, "K", "1",
       "number of files; they share the lines evenly, and the lines do not depend on it"},
      {"seed", FlagKind::kNumber, "S", "1",
       "seed of the values, the labels and the hidden weights behind the labels"},
      {"skip", FlagKind::kNumber, "N", "0",
       "skip this many lines, e.g. to make test data with the same hidden weights"},
      {"format", FlagKind::kText, "NAME", "criteo",
       "label, 13 counts, 26 categories, separated by tabs (CRITEO_TSV)"},
      {"zipf", FlagKind::kText, "Z", "1.05",
       "skew of the categories: the value of rank r occurs 1 / r^Z as often as the first"},
      {"cardinality", FlagKind::kNumber, "N", "",
       "at most this many distinct values per category; default: 3 to 10,131,227, as in Criteo's "
       "data"},
      {"positive_rate", FlagKind::kText, "P", "0.25", "expected share of label 1"},
      {"gzip", FlagKind::kBool, "", "",
       "compress with gzip; names in a folder end in .gz, a single file is named as given"},
      {"zstd", FlagKind::kBool, "", "",
       "compress with zstd; names in a folder end in .zst, a single file is named as given"},
      {"threads", FlagKind::kNumber, "N", "", "writer threads; default: one per core"},
      {"overwrite", FlagKind::kBool, "", "", "replace files that exist"},
  };
}

}  // namespace sluice::cli
