// sluice data: looks at data files, or makes some.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/commands/data_commands.h"
#include "cli/jobs/watch_job.h"

namespace sluice::cli {
namespace {

// Both subcommands have these.
bool IsShared(const std::string& flag) { return flag == "output" || flag == "overwrite"; }

// Refuses a flag that only the other subcommand has.
absl::Status RefuseFlags(const ParsedCommand& command, const std::string& word,
                         const std::vector<FlagSpec>& others) {
  for (const FlagSpec& flag : others) {
    if (IsShared(flag.name) || !command.Given(flag.name)) continue;
    return absl::InvalidArgumentError(absl::StrCat("sluice data ", word, " has no flag --",
                                                   flag.name, "; see sluice data --help"));
  }
  return absl::OkStatus();
}

int Data(const ParsedCommand& command) {
  const std::string word = command.words.empty() ? "" : command.words[0];
  if (word == "gen" && command.words.size() == 1) {
    const absl::Status flags = RefuseFlags(command, word, CheckDataFlags());
    return flags.ok() ? GenerateData(command) : ReportError(flags);
  }
  if (word == "check") {
    const absl::Status flags = RefuseFlags(command, word, GenerateDataFlags());
    return flags.ok() ? CheckDataFiles(command) : ReportError(flags);
  }
  return ReportError(absl::InvalidArgumentError(absl::StrCat(
      word.empty()    ? "sluice data needs a subcommand"
      : word == "gen" ? absl::StrCat("sluice data gen takes no '", command.words[1], "'")
                      : absl::StrCat("sluice data has no subcommand '", word, "'"),
      "; give sluice data check FILE... or sluice data gen (sluice data --help)")));
}

}  // namespace

Command DataCommand() {
  CommandSpec spec;
  spec.name = "data";
  spec.summary =
      "check: looks at data files (Parquet; CSV, TSV, LIBSVM, LIBFFM, JSON Lines, MultiSlot, "
      "slot:value or Criteo text, plain, gzip or zstd), reports what their columns hold, and "
      "writes a job file that trains on them as it is. "
      "gen: writes seeded click data shaped like Criteo's, and prints its best possible AUC.";
  spec.words = "check FILE|URL... | gen";
  spec.max_words = 100001;
  for (const FlagSpec& flag : CheckDataFlags()) spec.flags.push_back(flag);
  for (const FlagSpec& flag : GenerateDataFlags()) {
    if (!IsShared(flag.name)) spec.flags.push_back(flag);
  }
  spec.examples =
      "  sluice data check clicks.csv --output=clicks.textproto\n"
      "  sluice launch --job=clicks.textproto\n"
      "  sluice data check 'logs/day-*.tsv.gz' --label=clicked --json\n"
      "  sluice data check 'logs/day-*.parquet' --output=clicks.textproto\n"
      "  sluice data gen --examples=2000000 --output=data/train.tsv\n"
      "  sluice data gen --examples=200000 --skip=2000000 --output=data/test.tsv     (same hidden "
      "weights)\n"
      "  sluice data gen --examples=50000000 --files=16 --zstd --output=data/train\n";
  return {spec, &Data};
}

}  // namespace sluice::cli
