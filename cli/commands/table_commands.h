// The subcommands of sluice table that count and remove rows of a saved table.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/screen/command_line.h"

namespace sluice::cli {

// Prints text for people, wrapped into lines of at most 80 columns.
void PrintTableLine(const std::string& line);
// INVALID_ARGUMENT without an output; `what` is its form, such as DIR.
absl::Status CheckHasOutput(const std::string& output, const char* what);

absl::StatusOr<int> StatsOfTables(const ParsedCommand& command);
absl::StatusOr<int> ShrinkTableCommand(const ParsedCommand& command);
absl::StatusOr<int> DeleteFromTable(const ParsedCommand& command);

}  // namespace sluice::cli
