// sluice predict: scores data with a saved model, without a cluster.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/cluster/local_cluster.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_cleanup.h"
#include "cli/jobs/output_files.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/format.h"
#include "cli/screen/progress.h"
#include "cli/screen/stderr_lines.h"
#include "common/base/clock.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "common/places/places_env.h"
#include "common/saved_model/saved_model.h"
#include "model/predict_file.h"

namespace sluice::cli {
namespace {

OutputTarget TargetOf(const PredictOptions& options) {
  return options.output_file == kStandardOutput
             ? OutputTarget{options.output_file, /*in_place=*/true}
             : ResolveOutput(options.output_file);
}

absl::StatusOr<PredictSummary> Run(PredictOptions options, ScoreProgress* progress) {
  const OutputTarget target = TargetOf(options);
  std::vector<std::string> files;
  if (!target.in_place) files.push_back(UnfinishedName(target.path));
  const ExitCleanup cleanup(std::move(files));
  options.progress = [progress](uint64_t lines) { progress->Update(lines); };
  return PredictFile(options);
}

// Returns whether the scores go to standard output; the summary then goes to standard error.
bool IsStdout(const std::string& output) {
  struct stat file, standard;
  if (output == kStandardOutput) return true;
  return stat(output.c_str(), &file) == 0 && fstat(STDOUT_FILENO, &standard) == 0 &&
         file.st_dev == standard.st_dev && file.st_ino == standard.st_ino;
}

absl::StatusOr<PredictOptions> PredictionFromFlags(const ParsedCommand& command) {
  for (const char* flag : {"model", "data", "output"}) {
    if (command.Text(flag).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag, " is missing; sluice predict --model=DIR/model --data=FILE --output=FILE"));
    }
  }
  // The bound is far above any number of cores; it catches a wrong figure before it becomes memory.
  const long workers = command.Number("worker_num");
  if (workers < 1 || workers > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--worker_num=", workers, " is out of range; give 1 to 1000"));
  }
  if (command.Given("max_bad_lines") && command.Number("max_bad_lines") < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_bad_lines=", command.Number("max_bad_lines"), " is out of range; give 0 or more"));
  }
  PredictOptions options;
  options.env = AllPlaces();
  options.model_dir = command.Text("model");
  for (const std::string& list : command.All("data")) {
    for (const absl::string_view file : absl::StrSplit(list, ',', absl::SkipEmpty())) {
      options.data_files.emplace_back(file);
    }
  }
  options.output_file = command.Text("output");
  options.id_column = command.Text("id_column");
  options.replace = command.Switch("overwrite");
  if (command.Given("max_bad_lines"))
    options.max_bad_lines = static_cast<uint64_t>(command.Number("max_bad_lines"));
  options.worker_num = static_cast<int>(workers);
  options.net_threads = ThreadsPerWorker(options.worker_num);
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
  const OutputTarget target = TargetOf(options);
  // A terminal or pipe can be input and output at once.
  if (target.in_place) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(CheckIsOutside(options.output_file, options.model_dir));
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
    PrintOnStderr(absl::StrCat("note: --data names ", file, " ", end - again,
                               " times; it is scored each time"));
    again = end;
  }
}

int Predict(const ParsedCommand& command) {
  auto options = PredictionFromFlags(command);
  if (!options.ok()) return ReportError(options.status());
  const auto mode = ParseProgressMode(command.Text("progress"), isatty(STDERR_FILENO) == 1);
  if (!mode.ok()) return ReportError(mode.status());
  // A wrong --model is found before the data is looked at, which may be large.
  if (const absl::Status model = ReadManifest(options->model_dir, options->env).status();
      !model.ok())
    return ReportError(model);
  // Patterns become files first, so that the output can be compared with each of them.
  if (const absl::Status input = FixInput(&*options); !input.ok()) return ReportError(input);
  if (const absl::Status output = CheckOutput(*options); !output.ok()) return ReportError(output);
  NoteFilesNamedAgain(*options);
  const bool scores_on_stdout = IsStdout(options->output_file);
  // Progress goes to standard error, because the scores may go to standard output.
  ScoreProgress progress(*mode, Clock::Real(), &std::cerr);
  const auto summary = Run(*options, &progress);
  progress.Clear();
  if (!summary.ok()) return ReportError(summary.status());
  const BadLines& bad = summary->bad;
  if (bad.count > 0) {
    PrintNote(absl::StrCat(Counted(bad.count, "line"), bad.count == 1 ? " is" : " are",
                           " malformed and scored nan: ", bad.Describe()));
  }
  (scores_on_stdout ? std::cerr : std::cout)
      << "scored " << Counted(summary->examples, "example") << " into "
      << (options->output_file == kStandardOutput ? "standard output" : options->output_file)
      << std::endl;
  return kDone;
}

}  // namespace

Command PredictCommand() {
  CommandSpec spec;
  spec.name = "predict";
  spec.summary = "Writes the score of each line of a data file, in input order; needs no cluster.";
  spec.flags = {
      {"model", FlagKind::kText, "DIR|URL", "",
       "folder of a saved model: OUTPUT_DIR/model (required)"},
      {"data", FlagKind::kText, "FILE|URL", "",
       "files or globs, in the format of the model's job; one named twice is scored twice; - is "
       "standard input (required)",
       true},
      {"output", FlagKind::kText, "FILE|URL", "",
       "file, or object of a store (s3://), for one probability per line; it is replaced only when "
       "all lines are scored; - is "
       "standard output (required)"},
      {"id_column", FlagKind::kText, "NAME", "",
       "write this column of the data and a tab before each probability; a value with a tab, a "
       "line end or a quote in it is quoted as in CSV"},
      {"overwrite", FlagKind::kBool, "", "", "replace --output when it exists"},
      {"worker_num", FlagKind::kNumber, "N", "1",
       "number of threads; the output does not depend on it"},
      {"max_bad_lines", FlagKind::kNumber, "N", "",
       "fail when more lines are malformed; default: the limit of the model's job"},
      {"progress", FlagKind::kText, "auto|live|plain", "auto",
       "one live line, or plain lines, on standard error"},
  };
  spec.examples =
      "  sluice predict --model=output/adult-1/model --data=test.csv --output=scores.txt "
      "--worker_num=4\n"
      "  zcat test.csv.gz | sluice predict --model=M --data=- --id_column=user "
      "--output=-\n";
  return {spec, &Predict};
}

}  // namespace sluice::cli
