// sluice table: brings tables of saved models to files, and files to models; counts and removes
// rows of saved tables, without a cluster, and of a job that trains.
#include <malloc.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/commands/commands.h"
#include "cli/commands/table_commands.h"
#include "cli/jobs/job_submission.h"
#include "cli/jobs/output_files.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/format.h"
#include "cli/screen/wrap.h"
#include "common/base/local_path.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "common/places/places_env.h"
#include "model/built_in_models.h"
#include "model/data/expand_files.h"
#include "model/table_files/table_export.h"
#include "model/table_files/table_import.h"

namespace sluice::cli {
namespace {

// A subcommand: what it does, and its flags.
struct Verb {
  absl::StatusOr<int> (*run)(const ParsedCommand&);
  std::vector<std::string> flags;
};

void PrintUnmatched(const ImportReport& report) {
  if (report.unmatched == 0) return;
  PrintTableLine(absl::StrCat(
      Counted(report.unmatched, "row"),
      " left out, since the feature has no such value: ", absl::StrJoin(report.examples, ", "),
      report.unmatched > report.examples.size() ? ", ..." : ""));
}

absl::StatusOr<int> Export(const ParsedCommand& command) {
  ExportOptions options;
  if (command.words.size() != 2) {
    return absl::InvalidArgumentError(
        "give one folder of a model or checkpoint: sluice table export MODEL --output=FILE");
  }
  options.model = command.words[1];
  options.table = command.Text("table");
  options.output = command.Text("output");
  options.feature = command.Text("feature");
  options.vocabulary = command.Text("vocabulary");
  options.state = command.Switch("state");
  SLUICE_RETURN_IF_ERROR(CheckHasOutput(options.output, "FILE.parquet or FILE.npz"));
  std::vector<InputFile> inputs = FilesOfModel(options.model, AllPlaces());
  if (!options.vocabulary.empty()) inputs.push_back({"the vocabulary", options.vocabulary});
  SLUICE_RETURN_IF_ERROR(CheckIsOutside(options.output, options.model));
  SLUICE_RETURN_IF_ERROR(CheckOutputFile("--output", options.output, command.Switch("overwrite"),
                                         inputs, AllPlaces()));
  SLUICE_ASSIGN_OR_RETURN(const ExportReport report,
                          ExportTable(options, BuiltInSpecs(), AllPlaces()));
  PrintTableLine(absl::StrCat("table ", report.table, ": ",
                              Counted(report.rows, report.sparse ? "row" : "value"), " in ",
                              options.output));
  if (report.unnamed_rows > 0) {
    PrintTableLine(absl::StrCat(Counted(report.unnamed_rows, "row"),
                                " left out: no value of the vocabulary has the key"));
  }
  if (report.unused_values > 0) {
    PrintTableLine(absl::StrCat(Counted(report.unused_values, "value"),
                                " of the vocabulary without a row in the table"));
  }
  return kDone;
}

absl::Status ReadImportOptions(const ParsedCommand& command, ImportOptions* options) {
  google::protobuf::RepeatedPtrField<std::string> patterns;
  for (size_t i = 1; i < command.words.size(); ++i) *patterns.Add() = command.words[i];
  if (patterns.empty()) {
    return absl::InvalidArgumentError(
        "no file is given; sluice table import FILE --like=MODEL --output=DIR");
  }
  SLUICE_ASSIGN_OR_RETURN(options->files, ExpandFiles(patterns, AllPlaces(), "the current folder"));
  options->like = command.Text("like");
  options->table = command.Text("table");
  options->output = command.Text("output");
  options->overwrite = command.Switch("overwrite");
  options->state = command.Switch("state");
  options->feature = command.Text("feature");
  options->vocabulary = command.Text("vocabulary");
  options->column = command.Text("column");
  options->name = command.Text("name");
  options->text_columns = absl::StrSplit(command.Text("text_columns"), ',', absl::SkipWhitespace());
  if (options->like.empty() != command.Text("job").empty())
    return CheckHasOutput(options->output, "DIR");
  return absl::InvalidArgumentError(
      "give --like=MODEL, whose job and other tables the new model has; or --job=FILE, whose other "
      "tables begin with their initial values");
}

absl::StatusOr<int> Import(const ParsedCommand& command) {
  ImportOptions options;
  SLUICE_RETURN_IF_ERROR(ReadImportOptions(command, &options));
  JobConfig job;
  if (options.like.empty()) {
    SLUICE_ASSIGN_OR_RETURN(job, JobFromFlags(command));
    options.job = &job;
  }
  SLUICE_ASSIGN_OR_RETURN(const ImportReport report,
                          ImportTable(options, BuiltInSpecs(), AllPlaces()));
  PrintTableLine(absl::StrCat("table ", report.table, ": ",
                              Counted(report.rows, report.sparse ? "row" : "value"), " in ",
                              options.output));
  PrintUnmatched(report);
  if (report.unused_lines > 0) {
    PrintTableLine(
        absl::StrCat(Counted(report.unused_lines, "line"),
                     " of the vocabulary behind the last row: is each line that of its row?"));
  }
  if (!report.initial_columns.empty()) {
    PrintTableLine(absl::StrCat("initial values in ", absl::StrJoin(report.initial_columns, ", "),
                                ", which the file does not have"));
  }
  if (!report.unused_columns.empty()) {
    PrintTableLine(absl::StrCat("not read: ", absl::StrJoin(report.unused_columns, ", ")));
  }
  if (!report.digest.empty()) std::cout << "model_digest: " << report.digest << "\n";
  // Absolute, because a relative path in a job is relative to the job's file.
  std::error_code error;
  const std::string output = HasScheme(options.output)
                                 ? options.output
                                 : std::filesystem::absolute(options.output, error).string();
  std::cout << "start a job with\n  --set "
            << (options.state ? "initial_checkpoint" : "initial_model") << "=" << output << "\n";
  return kDone;
}

// Adds --job and the flags that name the scheduler.
std::vector<std::string> WithJob(std::vector<std::string> flags) {
  flags.push_back("job");
  for (const FlagSpec& flag : SchedulerFlags()) flags.push_back(flag.name);
  return flags;
}

const std::map<std::string, Verb>& Verbs() {
  static const auto* const verbs = new std::map<std::string, Verb>{
      {"delete", {&DeleteFromTable, WithJob({"table", "feature", "keys", "output", "dry_run"})}},
      {"export", {&Export, {"table", "feature", "vocabulary", "state", "output", "overwrite"}}},
      {"import",
       {&Import,
        {"table", "feature", "vocabulary", "state", "output", "overwrite", "like", "job", "set",
         "column", "name", "text_columns"}}},
      {"shrink",
       {&ShrinkTableCommand,
        WithJob({"table", "max_rows", "score", "half_life_days", "max_age_steps", "max_age_days",
                 "min_count", "output", "dry_run"})}},
      {"stats", {&StatsOfTables, WithJob({"table", "json"})}},
  };
  return *verbs;
}

// Refuses a flag of another subcommand.
absl::Status CheckFlags(const ParsedCommand& command, const std::string& word, const Verb& verb) {
  std::set<std::string> others;
  for (const auto& [other, its] : Verbs()) others.insert(its.flags.begin(), its.flags.end());
  for (const std::string& flag : verb.flags) others.erase(flag);
  for (const std::string& flag : others) {
    if (!command.Given(flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("sluice table ", word, " has no flag --", flag, "; see sluice table --help"));
  }
  return absl::OkStatus();
}

// Blocks of rows are allocated and freed all the time. Their memory stays with the process, since
// the kernel clears every page that it gives again.
void KeepMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

int Table(const ParsedCommand& command) {
  std::vector<std::string> words;
  for (const auto& [word, verb] : Verbs()) words.push_back(word);
  if (command.words.empty()) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("nothing to do is given; give one of ", absl::StrJoin(words, ", "),
                     ", such as sluice table stats MODEL")));
  }
  const std::string& word = command.words[0];
  const auto verb = Verbs().find(word);
  if (verb == Verbs().end()) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("sluice table cannot '", word, "'", DidYouMeanOrAll(word, words))));
  }
  KeepMemory();
  const absl::Status flags = CheckFlags(command, word, verb->second);
  const absl::StatusOr<int> code = flags.ok() ? verb->second.run(command) : flags;
  return code.ok() ? *code : ReportError(code.status());
}

}  // namespace

void PrintTableLine(const std::string& line) { std::cout << Wrapped(line, 80) << "\n"; }

absl::Status CheckHasOutput(const std::string& output, const char* what) {
  if (!output.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no output is given; give --output=", what));
}

Command TableCommand() {
  CommandSpec spec;
  spec.name = "table";
  spec.summary =
      "Works on saved models and checkpoints, without a cluster. export: writes a table to a "
      "Parquet "
      "or .npz file. import: makes a model from such a file, or from the tables of other systems. "
      "stats: counts the rows of sparse tables by updates, norm and age. shrink: makes a model or "
      "checkpoint with fewer rows, and delete one without certain rows. With --job, stats counts "
      "the rows of a job that trains, in a checkpoint that it makes now, and delete removes rows "
      "of the job with its next checkpoint, and waits until that is complete.";
  spec.words = "export|stats|shrink|delete MODEL|URL, import FILE|URL..., or stats|delete --job=ID";
  spec.max_words = 100001;
  spec.flags = {
      {"output", FlagKind::kText, "PATH|URL", "",
       "export: the file, NAME.parquet or NAME.npz. import, shrink, delete: the folder of the new "
       "model. Required, except with --dry_run or delete --job; may be at s3://"},
      {"table", FlagKind::kText, "NAME", "",
       "the table; default: that of --feature, or the only sparse one. stats: all sparse ones"},
      {"feature", FlagKind::kText, "NAME", "",
       "export: value and feature instead of key, for the values of the vocabulary. import, "
       "delete: "
       "the feature by whose rule values become keys"},
      {"vocabulary", FlagKind::kText, "FILE", "",
       "values of the feature, one a line. export: default: those of the job. import: line i is "
       "the value of row i, in a file whose rows have only numbers"},
      {"state", FlagKind::kBool, "", "",
       "with count, last_seen and the optimizer's state. export: of a checkpoint. import: makes a "
       "checkpoint, for initial_checkpoint"},
      {"overwrite", FlagKind::kBool, "", "", "export, import: replace an output that exists"},
      {"like", FlagKind::kText, "MODEL", "",
       "import: the model or checkpoint whose job and other tables the new one has"},
      {"job", FlagKind::kText, "FILE|ID", "",
       "import: the job; its other tables begin with their initial values. stats, delete: the id "
       "of a job that trains, whose rows are counted, or go (sluice status lists the ids)"},
      {"set", FlagKind::kText, "PATH=VALUE", "", "import: overrides any field of the job", true},
      {"column", FlagKind::kText, "NAME", "",
       "import: the column of the table to which the weights belong; default: the one of this "
       "width. Other columns get initial values"},
      {"name", FlagKind::kText, "NAME", "",
       "import: the EmbeddingVariable, in an .npz of several of DeepRec"},
      {"text_columns", FlagKind::kText, "LIST", "",
       "import: what the numbers behind the key of a text are: columns, and _N for N numbers that "
       "are left out, e.g. _4,wide,_1,embedding"},
      {"json", FlagKind::kBool, "", "", "stats: print JSON"},
      {"keys", FlagKind::kText, "FILE|URL", "",
       "delete: the keys, one a line, or with --feature values; or a file .parquet, .npz or .npy "
       "with such a column (required)"},
      {"max_rows", FlagKind::kNumber, "N", "",
       "shrink: the most rows that stay, those with the greatest score"},
      {"score", FlagKind::kText, "COUNT|LAST_USE|NORM", "",
       "shrink: by what rows are ordered for --max_rows: their updates, the step of the last one, "
       "or "
       "the norm of their weights. Default: evict.score of the table, or COUNT"},
      {"half_life_days", FlagKind::kText, "DAYS", "",
       "shrink: for COUNT, the days since the last update that halve it. Default: "
       "evict.half_life_days of the table"},
      {"max_age_steps", FlagKind::kNumber, "N", "",
       "shrink: rows whose last update lies more schedule steps back go"},
      {"max_age_days", FlagKind::kNumber, "N", "",
       "shrink: rows whose last update lies more days back go"},
      {"min_count", FlagKind::kNumber, "N", "", "shrink: rows with fewer updates go"},
      {"dry_run", FlagKind::kBool, "", "", "shrink, delete: say what would go, and write nothing"},
  };
  spec.examples =
      "  sluice table export output/adult/model --output=rows.parquet\n"
      "  sluice table export output/adult/checkpoints/step-600 --state --output=rows.npz\n"
      "  sluice table export output/adult/model --feature=occupation --vocabulary=jobs.txt "
      "--output=jobs.parquet\n"
      "  sluice table import rows.parquet --like=output/adult/model --output=model\n"
      "  sluice table import 'paddle/part-*' --job=job.textproto --feature=item --output=model\n"
      "  sluice table import weights.npy --job=job.textproto --feature=item --vocabulary=items.txt "
      "--output=model\n"
      "  sluice table stats output/adult/checkpoints/step-600\n"
      "  sluice table stats --job=adult-3\n"
      "  sluice table shrink output/adult/checkpoints/step-600 --max_rows=1000000 --dry_run\n"
      "  sluice table delete output/adult/model --feature=user --keys=gone.txt --output=model\n"
      "  sluice table delete --job=adult-3 --feature=user --keys=gone.txt\n";
  for (FlagSpec& flag : SchedulerFlags()) spec.flags.push_back(std::move(flag));
  return {spec, &Table};
}

}  // namespace sluice::cli
