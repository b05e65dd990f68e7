// Flags of the subcommands: `sluice COMMAND [--name=value | --name value | --[no]switch]...
// [word]...`, and the exit codes of the commands.
//
// Every command has its own flags. An unknown or misspelt flag is an error with a suggestion.
//
// Thread safety: plain data.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::cli {

// The exit codes.
constexpr int kDone = 0;
constexpr int kJobFailed = 1;    // the job failed or was cancelled, or a local operation failed
constexpr int kBadUsage = 2;     // wrong flags, files or configuration
constexpr int kUnreachable = 3;  // no scheduler answered
constexpr int kOutputLost = 4;   // done (a job is saved), but some output could not be printed
// 130, 143 and 129: stopped by SIGINT, SIGTERM or SIGHUP.

enum class FlagKind { kText, kNumber, kBool };

struct FlagSpec {
  std::string name;
  FlagKind kind = FlagKind::kText;
  std::string value_name;     // in the help: --name=VALUE_NAME
  std::string default_value;  // "" for none
  std::string help;
  bool repeated = false;
  std::string or_word = "";  // a word that a kNumber flag also takes, e.g. "auto"
};

struct CommandSpec {
  std::string name;
  std::string summary;
  std::string words;  // positional words in the help, e.g. "[JOB_ID]"
  size_t max_words = 0;
  std::vector<FlagSpec> flags;
  std::string examples;      // one per line
  bool only_prints = false;  // a reader that goes away (sluice logs | head) has seen enough
  std::string variables_of = "";  // the command whose SLUICE_* variables it reads; "": its own
};

class ParsedCommand {
 public:
  bool help = false;
  std::vector<std::string> words;
  std::vector<std::string> args;  // all that was given after the name of the command

  bool Given(const std::string& name) const { return values_.count(name) > 0; }
  // Returns the last value given, else the default.
  std::string Text(const std::string& name) const;
  long Number(const std::string& name) const;
  bool Switch(const std::string& name) const;
  // Returns the last value given, else that of the variable SLUICE_<NAME>, else the default. An
  // empty variable counts as not set.
  std::string TextOrVariable(const std::string& name) const;
  std::vector<std::string> All(const std::string& name) const;

 private:
  friend absl::StatusOr<ParsedCommand> ParseCommand(const CommandSpec& spec,
                                                    const std::vector<std::string>& args);
  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, std::string> defaults_;
};

// INVALID_ARGUMENT names the flag, its value and the possible values.
absl::StatusOr<ParsedCommand> ParseCommand(const CommandSpec& spec,
                                           const std::vector<std::string>& args);

std::string HelpText(const CommandSpec& spec);

// Returns `left` and the words of `text` behind it, in lines of at most 80 columns. Further lines
// begin below the first word, or at most 32 columns to the right.
std::string HangingText(const std::string& left, const std::string& text);

}  // namespace sluice::cli
