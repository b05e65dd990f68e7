// sluice data check: looks at data files, reports what they hold, and proposes a job for them.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/commands/data_commands.h"
#include "cli/jobs/job_files.h"
#include "cli/jobs/output_files.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/data_report.h"
#include "cli/screen/format.h"
#include "cli/screen/wrap.h"
#include "common/base/local_path.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "common/places/places_env.h"
#include "model/built_in_models.h"
#include "model/data/expand_files.h"
#include "model/data/file_columns.h"
#include "model/model_list.h"
#include "model/profile/held_out.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostCopied = uint64_t{4} << 30;  // without an explicit --hold_out

struct CheckOptions {
  std::vector<std::string> patterns, files;
  std::string output;  // "" for none
  double hold_out = 0.1;
  ProfileLimits limits;
};

absl::StatusOr<CheckOptions> OptionsFromFlags(const ParsedCommand& command) {
  CheckOptions options;
  if (command.words.size() < 2) {
    return absl::InvalidArgumentError(
        "no data file is named; sluice data check FILE... --output=job.textproto");
  }
  options.output = command.Text("output");
  google::protobuf::RepeatedPtrField<std::string> patterns;
  for (size_t i = 1; i < command.words.size(); ++i) *patterns.Add() = command.words[i];
  options.patterns.assign(patterns.begin(), patterns.end());
  if (std::count(patterns.begin(), patterns.end(), kStandardInputFile) > 0) {
    if (patterns.size() > 1) {
      return absl::InvalidArgumentError(
          "- (standard input) is one stream; name no files beside it");
    }
    if (!options.output.empty()) {
      return absl::InvalidArgumentError(
          "--output: a job reads its data more than once, and cannot read standard input; put the "
          "data into a file and name that");
    }
    options.files = {kStandardInputFile};
  } else {
    ExpandLimits limits;
    SLUICE_ASSIGN_OR_RETURN(options.files,
                            ExpandFiles(patterns, AllPlaces(), "the current folder", limits));
  }
  if (!absl::SimpleAtod(command.Text("hold_out"), &options.hold_out) || options.hold_out < 0 ||
      options.hold_out > 0.9) {
    return absl::InvalidArgumentError(absl::StrCat("--hold_out=", command.Text("hold_out"),
                                                   " is out of range; give a share from 0 to 0.9"));
  }
  if (command.Switch("all")) {
    options.limits.bytes = UINT64_MAX;
    options.limits.files = SIZE_MAX;
  }
  if (options.output == kStandardOutput) {
    return absl::InvalidArgumentError(
        "--output=- is not supported: give a file name; without --output the job is printed");
  }
  return options;
}

// A name for the job, of the characters that a name may have.
std::string JobNameOf(const CheckOptions& options) {
  const fs::path path = options.output.empty() ? options.files[0] : options.output;
  std::string name;
  for (const char c : path.filename().string().substr(0, path.filename().string().find('.'))) {
    if (name.size() == 64) break;
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ? c : '_';
  }
  return name.empty() ? "job" : name;
}

// The path from the folder of the output, where the file lies below that; else the whole path.
std::string PathFromOutput(const std::string& file, const std::string& output) {
  std::error_code error;
  const fs::path absolute = fs::absolute(file, error).lexically_normal();
  if (output.empty()) return absolute.string();
  const fs::path folder = fs::absolute(output, error).lexically_normal().parent_path();
  const fs::path relative = absolute.lexically_relative(folder);
  return relative.empty() || *relative.begin() == ".." ? absolute.string() : relative.string();
}

// The file as the job names it.
std::string PathInJob(const std::string& file, const std::string& output) {
  if (file == kStandardInputFile) return "FILE";
  const std::string path = HasScheme(file) ? file : PathFromOutput(file, output);
  // A '?' in the address of a web server begins its query; all other files are patterns.
  if (HasScheme(file) && !absl::StartsWith(file, "s3://")) return path;
  std::string marked;
  for (const char c : path) {
    if (std::string("*?[\\").find(c) != std::string::npos) marked += '\\';
    marked += c;
  }
  return marked;
}

// The file as a pattern that finds it alone, and by which its folders `key=value` are columns: one
// with a wildcard, [2] for 2, in the first of them that names one of folder_columns: those before
// it are not of the pattern that was given. The path itself: it has none, or one whose value begins
// with a character that may mean something there.
std::string PatternInJob(const std::string& file, const TableProfile& table,
                         const std::string& output) {
  std::string path = PathInJob(file, output);
  if (HasScheme(file) && !absl::StartsWith(file, "s3://")) return path;
  size_t begin = 0;  // of the folder
  for (size_t at = 0; at < path.size(); ++at) {
    if (path[at] == '/') begin = at + 1;
    if (path[at] != '=' || path.find('/', at) == std::string::npos) continue;
    const std::string name = path.substr(begin, at - begin);
    if (std::none_of(table.folder_columns.begin(), table.folder_columns.end(),
                     [&](const ColumnProfile& column) { return column.name() == name; })) {
      continue;
    }
    const char first = path[at + 1];
    if (first < 0 || absl::string_view("]^!\\*?[{}/").find(first) != absl::string_view::npos)
      return path;
    path.insert(at + 2, "]");
    path.insert(at + 1, "[");
    return path;
  }
  return path;
}

// Whether the proposed job reads the files that were looked at, and not copies of their lines.
bool NamesFiles(const TableProfile& table, const CheckOptions& options) {
  return !RolesOf(table.files).eval.empty() || options.hold_out == 0 || options.output.empty();
}

// Whether folders of the files are columns of the proposed job.
bool HasFolders(const TableProfile& table, const CheckOptions& options) {
  const auto pattern = [&](const std::string& file) {
    return PatternInJob(file, table, options.output) != PathInJob(file, options.output);
  };
  return !table.folder_columns.empty() && NamesFiles(table, options) &&
         std::all_of(options.files.begin(), options.files.end(), pattern);
}

// The files of the parts that the lines of one file are copied to.
struct PartFiles {
  std::string train, eval;
};

PartFiles PartFilesOf(const std::string& output, const DataConfig& data) {
  const DataFormat& format = FormatOf(data);
  const char* const suffix = format.rows                                  ? ".parquet"
                             : format.json                                ? ".jsonl"
                             : format.numbered || format.slots            ? ".txt"
                             : absl::string_view(format.delimiter) == "," ? ".csv"
                                                                          : ".tsv";
  const fs::path path(output);
  const std::string stem = (path.parent_path() / path.stem()).string();
  return {absl::StrCat(stem, "-train", suffix), absl::StrCat(stem, "-eval", suffix)};
}

// The files that lines were copied to. Removes them, unless the job that reads them was written.
class Copies {
 public:
  Copies() = default;
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  ~Copies() {
    for (const std::string& path : paths_) Env::Real()->RemoveFile(path).IgnoreError();
  }
  void Add(const PartFiles& parts) { paths_ = {parts.train, parts.eval}; }
  void Keep() { paths_.clear(); }

 private:
  std::vector<std::string> paths_;
};

// The word for one example of the data in messages: a line or a row.
const char* UnitOf(const TableProfile& table) {
  return FormatOf(table.shape.data).rows ? "row" : "line";
}

// Names the files of the proposal, and copies lines into parts where one file must do. Returns a
// sentence about it.
absl::StatusOr<std::string> NameFiles(const TableProfile& table, const CheckOptions& options,
                                      bool hold_out_given, bool replace, JobProposal* proposal,
                                      Copies* copies) {
  const FileRoles roles = RolesOf(table.files);
  DataConfig* const data = proposal->job.mutable_data();
  const bool folders = HasFolders(table, options);
  const auto add = [&](const std::vector<std::string>& files,
                       google::protobuf::RepeatedPtrField<std::string>* to) {
    for (const std::string& file : files) {
      *to->Add() =
          folders ? PatternInJob(file, table, options.output) : PathInJob(file, options.output);
    }
  };
  if (!roles.eval.empty()) {
    add(roles.train, data->mutable_train_files());
    add(roles.eval, data->mutable_eval_files());
    return absl::StrCat(
        roles.why, ": ", roles.eval.front(),
        roles.eval.size() > 1 ? absl::StrCat(" and ", roles.eval.size() - 1, " more") : "",
        roles.unused.empty()
            ? ""
            : absl::StrCat("; ", roles.unused.front(), " is left for a test afterwards"));
  }
  if (options.hold_out == 0) {
    add(roles.train, data->mutable_train_files());
    return std::string("nothing evaluates the model, because of --hold_out=0");
  }
  if (options.output.empty()) {
    add(roles.train, data->mutable_train_files());
    return absl::StrFormat("with --output, %.0f %% of the %ss are held out to evaluate",
                           100 * options.hold_out, UnitOf(table));
  }
  const TableProfile::File& file = table.files[0];
  const bool rows = FormatOf(*data).rows;
  const uint64_t bytes = file.compressed ? 4 * file.size : file.size;
  if (bytes > kMostCopied && !hold_out_given) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, " has about ", ByteCount(bytes), rows ? "" : " of text", ", and holding out ",
        UnitOf(table),
        "s copies it; give "
        "--hold_out=0.1 to do so, name a second file that evaluates, or give --hold_out=0"));
  }
  const PartFiles parts = PartFilesOf(options.output, *data);
  const std::vector<InputFile> inputs = {{"the data", file.path}};
  for (const std::string& part : {parts.train, parts.eval})
    SLUICE_RETURN_IF_ERROR(CheckOutputFile("--output", part, replace, inputs, Env::Real()));
  const auto held =
      rows ? HoldOutRows(file.path, options.hold_out, parts.train, parts.eval, AllPlaces())
           : HoldOutLines(file.path, table.shape, options.hold_out, parts.train, parts.eval,
                          AllPlaces());
  if (!held.ok()) {
    if (!rows) return held.status();
    return absl::Status(held.status().code(),
                        absl::StrCat("cannot copy rows to evaluate with: ", held.status().message(),
                                     "; name a second file that evaluates, or give --hold_out=0"));
  }
  copies->Add(parts);
  if (held->eval_lines == 0 || held->train_lines == 0) {
    const uint64_t all = held->eval_lines + held->train_lines;
    return absl::InvalidArgumentError(absl::StrCat(
        held->eval_lines == 0 ? "none" : "all", " of the ", Counted(all, UnitOf(table)), " of ",
        file.path, " would evaluate the model; give ",
        held->eval_lines == 0 ? "a larger --hold_out, such as 0.5" : "a smaller --hold_out",
        ", or --hold_out=0 to train without an evaluation"));
  }
  add({parts.train}, data->mutable_train_files());
  add({parts.eval}, data->mutable_eval_files());
  return absl::StrCat("the ", UnitOf(table), "s of ", file.path, " are copied to ", parts.train,
                      " (", WithCommas(held->train_lines), ") and ", parts.eval, " (",
                      WithCommas(held->eval_lines), ", chosen by a hash of their numbers)",
                      held->too_long == 0 ? ""
                                          : absl::StrCat("; ", Counted(held->too_long, "line"),
                                                         " too long to be read left out"));
}

// The job as launch will read it, or what is wrong with it.
absl::Status CheckProposal(const std::string& text, const std::string& output) {
  JobConfig job;
  SLUICE_RETURN_IF_ERROR(ParseTextproto(text, output, &job, nullptr));
  std::error_code error;
  const std::string folder = fs::absolute(output, error).parent_path().string();
  SLUICE_ASSIGN_OR_RETURN(job, EffectiveJobConfig(job, folder, BuiltInSpecs()));
  DataCheckReport report;
  return CheckDataLines(job, Env::Real(), DataCheckOptions(), &report);
}

// The first lines of the job file.
std::vector<std::string> HeaderOf(const ParsedCommand& command, const CheckOptions& options,
                                  const TableProfile& table, const std::string& files_sentence) {
  std::string line = absl::StrCat(
      "Written by sluice data check from ", Counted(table.files.size(), "file"), ": ",
      Counted(table.lines, UnitOf(table)),
      table.whole ? ", all of them, were looked at."
                  : absl::StrCat(" of about ", WithCommas(table.all_lines), " were looked at."));
  std::vector<std::string> lines = {line};
  if (!files_sentence.empty()) lines.push_back("Files: " + files_sentence + ".");
  lines.push_back("");
  lines.push_back(
      absl::StrCat("  sluice launch --job=", options.output.empty() ? "JOB" : options.output));
  return lines;
}

// A job that reads copies of lines, or files that no pattern names, has no columns of folders.
void LeaveOutFolders(const CheckOptions& options, TableProfile* table) {
  if (HasFolders(*table, options)) return;
  for (const ColumnProfile& column : table->folder_columns) {
    table->no_features.emplace_back(
        column.name(),
        absl::StrCat("it is the name of a folder, and a column only of jobs whose data.train_files "
                     "and data.eval_files are patterns, such as ",
                     options.patterns[0]));
  }
}

void PrintWrapped(const std::string& line) { std::cout << Wrapped(line, 80) << "\n"; }

int Check(const ParsedCommand& command, const CheckOptions& options) {
  const bool replace = command.Switch("overwrite"), json = command.Switch("json");
  if (!options.output.empty()) {
    std::vector<InputFile> inputs;
    for (const std::string& file : options.files) inputs.push_back({"the data", file});
    const absl::Status output =
        CheckOutputFile("--output", options.output, replace, inputs, Env::Real());
    if (!output.ok()) return ReportError(output);
  }
  auto table = ProfileTable(options.files, options.limits, AllPlaces());
  if (absl::IsFailedPrecondition(table.status())) {
    // Parquet without Arrow: no file is read before it is there.
    return ReportError(absl::InvalidArgumentError(table.status().message()));
  }
  if (!table.ok()) return ReportError(table.status());
  if (table->lines == table->bad.count) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("data file ", options.files[0],
                     " has a header but no lines with examples: ", table->bad.Describe())));
  }
  table->folder_columns = FolderColumns(options.patterns, *table);
  if (!json) std::cout << TableText(*table);
  const auto label = ChooseLabel(*table, command.Text("label"));
  if (!label.ok()) {
    if (json) {
      std::cout << DataReportJson(*table, nullptr, nullptr, {}, "",
                                  std::string(label.status().message()));
    }
    return ReportError(label.status());
  }
  LeaveOutFolders(options, &*table);
  JobProposal proposal = ProposeJob(*table, *label, JobNameOf(options));
  const std::vector<std::string> suspicious = SuspiciousColumns(*table, *label);
  if (!json) std::cout << ProposalText(*table, *label, proposal, suspicious);
  if (proposal.job.features().empty()) {
    return ReportError(
        absl::InvalidArgumentError("no column is left for a feature: each is the label, or was "
                                   "left out for the reason above"));
  }
  Copies copies;
  const auto named =
      NameFiles(*table, options, command.Given("hold_out"), replace, &proposal, &copies);
  if (!named.ok()) return ReportError(named.status());
  if (proposal.job.data().eval_files().empty() && !options.output.empty()) {
    // Both need an evaluation.
    proposal.job.clear_checkpoint();
    proposal.job.mutable_train()->clear_early_stop();
  }
  if (!json) PrintWrapped("files: " + *named);
  const std::string text = JobText(proposal, HeaderOf(command, options, *table, *named));
  if (json) std::cout << DataReportJson(*table, &*label, &proposal, suspicious, text, "");
  if (options.output.empty()) {
    if (!json) std::cout << "\n--output=job.textproto writes this job:\n\n" << text;
    return kDone;
  }
  const absl::Status checked = CheckProposal(text, options.output);
  if (!checked.ok()) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("the proposed job does not fit the data: ", checked.message(),
                     "; without --output it is printed, to be corrected by hand")));
  }
  const absl::Status written = Env::Real()->WriteFile(options.output, {text});
  if (!written.ok()) return ReportError(written);
  copies.Keep();
  if (!json) {
    std::cout << "wrote " << options.output
              << "; train with\n  sluice launch --job=" << options.output << "\n";
  }
  return kDone;
}

}  // namespace

int CheckDataFiles(const ParsedCommand& command) {
  const auto options = OptionsFromFlags(command);
  return options.ok() ? Check(command, *options) : ReportError(options.status());
}

std::vector<FlagSpec> CheckDataFlags() {
  return {
      {"label", FlagKind::kText, "COLUMN", "",
       "check: the column of the label; COLUMN=VALUE says which value means 1, COLUMN>=NUMBER from "
       "which number on; default: the column that looks most like one"},
      {"output", FlagKind::kText, "FILE", "",
       "check: write the proposed job to this file. gen: the data (required): a file, \"-\" for "
       "standard output, or with --files the folder for part-00000.tsv, ..."},
      {"hold_out", FlagKind::kText, "SHARE", "0.1",
       "check: with one data file, copy its lines or rows to OUTPUT-train and OUTPUT-eval, this "
       "share to the latter; 0: no copies, and no evaluation"},
      {"all", FlagKind::kBool, "", "",
       "check: look at everything; default: 64 MiB of text, or of Parquet's columns, of at most "
       "64 files"},
      {"json", FlagKind::kBool, "", "", "check: print the report as JSON"},
      {"overwrite", FlagKind::kBool, "", "", "replace files that exist"},
  };
}

}  // namespace sluice::cli
