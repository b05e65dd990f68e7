// sluice table stats, shrink and delete.
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/table_commands.h"
#include "cli/screen/format.h"
#include "cli/screen/table_stats_text.h"
#include "common/base/status_macros.h"
#include "common/places/places_env.h"
#include "model/built_in_models.h"
#include "model/data/expand_files.h"
#include "model/table_files/table_delete.h"
#include "model/table_files/table_shrink.h"
#include "model/table_files/table_stats.h"

namespace sluice::cli {
namespace {

absl::StatusOr<std::string> FolderOf(const ParsedCommand& command) {
  if (command.words.size() == 2) return command.words[1];
  return absl::InvalidArgumentError(absl::StrCat(
      "give one folder of a model or checkpoint: sluice table ", command.words[0], " FOLDER"));
}

// The new folder; "" with --dry_run.
absl::StatusOr<std::string> OutputOf(const ParsedCommand& command) {
  if (command.Switch("dry_run")) return std::string();
  const std::string output = command.Text("output");
  SLUICE_RETURN_IF_ERROR(CheckHasOutput(output, "DIR, a new folder, or --dry_run"));
  return output;
}

template <typename T>
absl::Status ReadLimit(const ParsedCommand& command, const char* flag, std::optional<T>* limit) {
  if (!command.Given(flag)) return absl::OkStatus();
  const long value = command.Number(flag);
  if (value < 0 || static_cast<unsigned long>(value) > std::numeric_limits<T>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", value, " is not from 0 to ", std::numeric_limits<T>::max()));
  }
  *limit = static_cast<T>(value);
  return absl::OkStatus();
}

absl::Status ReadScore(const ParsedCommand& command, ShrinkOptions* options) {
  if (command.Given("score")) {
    EvictConfig::Score score;
    if (!EvictConfig::Score_Parse(absl::AsciiStrToUpper(command.Text("score")), &score)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--score=", command.Text("score"), " is not COUNT, LAST_USE or NORM"));
    }
    options->score = score;
  }
  if (!command.Given("half_life_days")) return absl::OkStatus();
  double days = 0;
  if (!absl::SimpleAtod(command.Text("half_life_days"), &days) || !(days >= 0 && days <= 1e6)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--half_life_days=", command.Text("half_life_days"), " is not from 0 to 1000000 days"));
  }
  options->half_life_days = days;
  return absl::OkStatus();
}

void PrintResult(const std::string& table, const RewriteReport& report, const std::string& output) {
  PrintTableLine(absl::StrCat(
      "table ", table, ": ", WithCommas(report.kept), " of ", Counted(report.rows, "row"),
      output.empty() ? " would stay; nothing is written" : absl::StrCat(" stay in ", output), " (",
      output.empty() ? "about " : "", ByteCount(report.kept_bytes), " of ", ByteCount(report.bytes),
      ")"));
  if (report.chains_ended > 0) {
    PrintTableLine(
        "more rows went than a delta can name: the next export of the job is a new base");
  }
  if (!report.digest.empty()) std::cout << "model_digest: " << report.digest << "\n";
}

}  // namespace

absl::StatusOr<int> StatsOfTables(const ParsedCommand& command) {
  if (command.Given("job")) return StatsOfRunningJob(command);
  SLUICE_ASSIGN_OR_RETURN(const std::string folder, FolderOf(command));
  SLUICE_ASSIGN_OR_RETURN(const FolderStats stats,
                          StatTables(folder, command.Text("table"), AllPlaces()));
  std::cout << (command.Switch("json") ? TableStatsJson(folder, stats)
                                       : TableStatsText(folder, stats));
  return kDone;
}

absl::StatusOr<int> ShrinkTableCommand(const ParsedCommand& command) {
  if (command.Given("job")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no command shrinks a job that trains; the expire and evict of its tables drop rows as it ",
        "trains. End job ", command.Text("job"), " and continue with --resume and a limit, tables ",
        "{ max_rows: N evict {} }; or start from its checkpoint (initial_checkpoint) with ",
        "tables { expire { ... } }; or shrink that checkpoint, and start from the result"));
  }
  ShrinkOptions options;
  SLUICE_ASSIGN_OR_RETURN(options.folder, FolderOf(command));
  SLUICE_ASSIGN_OR_RETURN(options.output, OutputOf(command));
  options.table = command.Text("table");
  SLUICE_RETURN_IF_ERROR(ReadLimit(command, "max_age_steps", &options.max_age_steps));
  SLUICE_RETURN_IF_ERROR(ReadLimit(command, "max_age_days", &options.max_age_days));
  SLUICE_RETURN_IF_ERROR(ReadLimit(command, "min_count", &options.min_count));
  SLUICE_RETURN_IF_ERROR(ReadLimit(command, "max_rows", &options.max_rows));
  SLUICE_RETURN_IF_ERROR(ReadScore(command, &options));
  SLUICE_ASSIGN_OR_RETURN(const ShrinkReport report, ShrinkTable(options, AllPlaces()));
  std::vector<std::string> reasons;
  for (const auto& [rows, what] : std::initializer_list<std::pair<uint64_t, const char*>>{
           {report.expired, "expired"},
           {report.too_old, "too old"},
           {report.too_rare, "with fewer updates than --min_count"},
           {report.beyond_max_rows, "beyond --max_rows"}}) {
    if (rows > 0) reasons.push_back(absl::StrCat(WithCommas(rows), " ", what));
  }
  if (!reasons.empty()) {
    PrintTableLine(absl::StrCat(options.output.empty() ? "would go: " : "gone: ",
                                absl::StrJoin(reasons, ", ")));
  }
  PrintResult(report.table, report.rewrite, options.output);
  return kDone;
}

absl::StatusOr<std::vector<std::string>> KeyFilesOf(const ParsedCommand& command) {
  if (command.Text("keys").empty()) {
    return absl::InvalidArgumentError(
        "no keys are given; give --keys=FILE, a key a line, or with --feature=NAME a value");
  }
  google::protobuf::RepeatedPtrField<std::string> patterns;
  *patterns.Add() = command.Text("keys");
  return ExpandFiles(patterns, AllPlaces(), "the current folder");
}

void PrintKeyNotes(const NamedKeys& named, uint64_t gone, bool are_values) {
  if (named.folded && gone > 0) {
    PrintTableLine(
        "several values of the feature share a row, by its hash_buckets: others may have lost "
        "theirs");
  }
  if (named.unmatched > 0) {
    PrintTableLine(absl::StrCat(
        Counted(named.unmatched, "value"),
        " left out, since the feature has no such value: ", absl::StrJoin(named.examples, ", "),
        named.unmatched > named.examples.size() ? ", ..." : ""));
  }
  if (gone == 0 && named.keys > 0 && !are_values) {
    PrintTableLine(
        "none of the keys has a row: are they values of a feature? Then give --feature=NAME");
  }
}

absl::StatusOr<int> DeleteFromTable(const ParsedCommand& command) {
  if (command.Given("job")) return DeleteFromRunningJob(command);
  DeleteOptions options;
  SLUICE_ASSIGN_OR_RETURN(options.folder, FolderOf(command));
  SLUICE_ASSIGN_OR_RETURN(options.output, OutputOf(command));
  options.table = command.Text("table");
  options.feature = command.Text("feature");
  SLUICE_ASSIGN_OR_RETURN(options.files, KeyFilesOf(command));
  SLUICE_ASSIGN_OR_RETURN(const DeleteReport report,
                          DeleteRows(options, BuiltInSpecs(), AllPlaces()));
  const uint64_t keys = report.named.keys;
  PrintTableLine(absl::StrCat(WithCommas(report.found), " of ", Counted(keys, "key"), " found",
                              options.output.empty() ? "" : " and deleted", "; ",
                              WithCommas(keys - report.found), " without a row"));
  PrintKeyNotes(report.named, report.found, !options.feature.empty());
  PrintResult(report.table, report.rewrite, options.output);
  return kDone;
}

}  // namespace sluice::cli
