// The subcommands of sluice table that count and remove rows, of a saved table or of a job that
// trains.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/screen/command_line.h"
#include "model/table_files/key_files.h"

namespace sluice::cli {

// Prints text for people, wrapped into lines of at most 80 columns.
void PrintTableLine(const std::string& line);
// INVALID_ARGUMENT without an output; `what` is its form, such as DIR.
absl::Status CheckHasOutput(const std::string& output, const char* what);

absl::StatusOr<int> StatsOfTables(const ParsedCommand& command);
absl::StatusOr<int> ShrinkTableCommand(const ParsedCommand& command);
absl::StatusOr<int> DeleteFromTable(const ParsedCommand& command);
// With --job.
absl::StatusOr<int> StatsOfRunningJob(const ParsedCommand& command);
absl::StatusOr<int> DeleteFromRunningJob(const ParsedCommand& command);
// The files of --keys.
absl::StatusOr<std::vector<std::string>> KeyFilesOf(const ParsedCommand& command);
// Says what a user may not expect of the keys, of which `gone` rows went.
void PrintKeyNotes(const NamedKeys& named, uint64_t gone, bool are_values);

}  // namespace sluice::cli
