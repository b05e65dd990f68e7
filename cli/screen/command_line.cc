#include "cli/screen/command_line.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/local_path.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "common/config/field_path.h"
#include "common/config/job_config.h"
#include "proto/config.pb.h"

namespace sluice::cli {
namespace {

constexpr size_t kHelpColumn = 32;  // where the helps of flags stand

const FlagSpec* FindFlag(const CommandSpec& spec, const std::string& name) {
  const auto it = std::find_if(spec.flags.begin(), spec.flags.end(),
                               [&](const FlagSpec& f) { return f.name == name; });
  return it == spec.flags.end() ? nullptr : &*it;
}

// The flag that other launchers name `name`, or "".
std::string FlagOfOtherLaunchers(const std::string& name) {
  for (const char* workers : {"num_workers", "nproc_per_node", "nproc", "np"})
    if (absl::StrReplaceAll(name, {{"-", "_"}}) == workers) return "worker_num";
  return "";
}

// Whether the command runs a program of the user, which may have been meant to get the flag.
bool RunsProgram(const CommandSpec& spec, const std::vector<std::string>& args) {
  return FindFlag(spec, "program") != nullptr &&
         std::any_of(args.begin(), args.end(), [](const std::string& arg) {
           return arg == "--program" || absl::StartsWith(arg, "--program=");
         });
}

absl::Status UnknownFlag(const CommandSpec& spec, const std::string& name,
                         const std::vector<std::string>& args) {
  const std::vector<std::string> fields = FindFlag(spec, "set") == nullptr
                                              ? std::vector<std::string>()
                                              : PathsNamed(*JobConfig::descriptor(), name);
  const std::string of_program =
      RunsProgram(spec, args) ? "; arguments of the program follow --" : "";
  // Only commands with --set take fields of the job, so only there is this the likely mistake.
  if (!fields.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("sluice ", spec.name, " has no flag --", name,
                                                   "; it is a field of the job: --set ",
                                                   fields.front(), "=VALUE", of_program));
  }
  std::vector<std::string> names;
  for (const FlagSpec& flag : spec.flags) names.push_back(flag.name);
  const std::string meant = FlagOfOtherLaunchers(name);
  return absl::InvalidArgumentError(
      absl::StrCat("sluice ", spec.name, " has no flag --", name,
                   FindFlag(spec, meant) == nullptr ? DidYouMeanOrAll(name, names)
                                                    : absl::StrCat("; did you mean '", meant, "'?"),
                   of_program, " (sluice ", spec.name, " --help)"));
}

absl::Status CheckValue(const FlagSpec& flag, const std::string& value) {
  int64_t number;
  bool yes;
  if (!flag.or_word.empty() && value == flag.or_word) return absl::OkStatus();
  // 64k and 1e6 are refused as well, but the message can say which digits were meant.
  if (flag.kind == FlagKind::kNumber && !absl::SimpleAtoi(value, &number)) {
    const std::optional<std::string> digits = DigitsOf(value);
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag.name, "=", value, " is not a whole number",
        digits ? " in digits; give --" : "; give e.g. --", flag.name, "=", digits.value_or("2")));
  }
  // The help names what a flag takes: DIR, FILE, FILE|DIR or, for data, FILE|URL. Some take
  // several, with commas between.
  if (absl::StrContains(flag.value_name, "DIR") || absl::StrContains(flag.value_name, "FILE")) {
    for (const absl::string_view path : absl::StrSplit(value, ',')) {
      const bool of_data = absl::StrContains(flag.value_name, "URL");
      const std::string problem = of_data ? DataUrlProblem(path) : SchemeProblem(path);
      if (problem.empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag.name, "=", value, ": '", path, "' ", problem));
    }
  }
  // A shell expands ~ only at the beginning of a word. A folder named ~ would be an accident.
  const std::string tilde = "~/";
  if (absl::StartsWith(value, tilde) || absl::StrContains(value, "=" + tilde)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag.name, "=", value, ": the shell did not expand ~ here; write --",
                     flag.name, "=", absl::StrReplaceAll(value, {{tilde, "$HOME/"}})));
  }
  if (flag.kind == FlagKind::kBool && !absl::SimpleAtob(value, &yes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag.name, "=", value, " is neither true nor false; give one of them"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ParsedCommand::Text(const std::string& name) const {
  const auto it = values_.find(name);
  if (it != values_.end()) return it->second.back();
  const auto fallback = defaults_.find(name);
  return fallback == defaults_.end() ? "" : fallback->second;
}

std::string ParsedCommand::TextOrVariable(const std::string& name) const {
  const std::string variable = absl::StrCat("SLUICE_", absl::AsciiStrToUpper(name));
  const char* const value = std::getenv(variable.c_str());
  return Given(name) || value == nullptr || *value == '\0' ? Text(name) : value;
}

long ParsedCommand::Number(const std::string& name) const {
  // ParseCommand has checked the value. It is no number only when the flag was not given, or has a
  // word such as auto.
  int64_t value = 0;  // for a number that is not given
  if (!absl::SimpleAtoi(Text(name), &value)) return 0;
  return value;
}

bool ParsedCommand::Switch(const std::string& name) const {
  bool value = false;
  return absl::SimpleAtob(Text(name), &value) && value;
}

std::vector<std::string> ParsedCommand::All(const std::string& name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? std::vector<std::string>() : it->second;
}

absl::StatusOr<ParsedCommand> ParseCommand(const CommandSpec& spec,
                                           const std::vector<std::string>& args) {
  ParsedCommand parsed;
  parsed.args = args;
  for (const FlagSpec& flag : spec.flags) parsed.defaults_[flag.name] = flag.default_value;
  bool only_words = false;
  for (size_t i = 0; i < args.size(); ++i) {
    // A single dash is a word, which stands for standard input.
    if (only_words || !absl::StartsWith(args[i], "-") || args[i] == "-") {
      const bool of_data = absl::StrContains(spec.words, "URL");
      const std::string problem = of_data ? DataUrlProblem(args[i]) : SchemeProblem(args[i]);
      if (!problem.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("sluice ", spec.name, ": '", args[i], "' ", problem));
      }
      parsed.words.push_back(args[i]);
      continue;
    }
    if (args[i] == "--") {
      only_words = true;
      continue;
    }
    // Help wins over whatever else is wrong with the command.
    if (args[i] == "--help" || args[i] == "-h" || args[i] == "-help") {
      parsed.help = true;
      return parsed;
    }
    const std::vector<std::string> pieces = absl::StrSplit(args[i], absl::MaxSplits('=', 1));
    std::string name(absl::StripPrefix(absl::StripPrefix(pieces[0], "-"), "-"));
    const FlagSpec* flag = FindFlag(spec, name);
    std::string value;
    // --nowait means --wait=false. A flag whose own name begins with "no" has been found above.
    if (flag == nullptr && pieces.size() == 1 && absl::StartsWith(name, "no")) {
      flag = FindFlag(spec, name.substr(2));
      if (flag != nullptr && flag->kind != FlagKind::kBool) flag = nullptr;
      value = "false";
    } else if (flag != nullptr && pieces.size() == 2) {
      value = pieces[1];
      // A switch takes its value only after "=": the next argument may be a word of the command.
    } else if (flag != nullptr && flag->kind == FlagKind::kBool) {
      value = "true";
    } else if (flag != nullptr) {
      if (i + 1 == args.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " has no value; give --", name, "=", flag->value_name));
      }
      value = args[++i];
    }
    if (flag == nullptr) return UnknownFlag(spec, name, args);
    SLUICE_RETURN_IF_ERROR(CheckValue(*flag, value));
    parsed.values_[flag->name].push_back(value);
  }
  if (parsed.words.size() > spec.max_words) {
    const std::string& word = parsed.words[spec.max_words];
    // A job given as a word is the most common mistake, so the message shows its flag.
    const bool job = FindFlag(spec, "job") != nullptr && !absl::StrContains(word, '=');
    return absl::InvalidArgumentError(
        absl::StrCat("sluice ", spec.name, " does not take '", word, "'; ",
                     job ? absl::StrCat("a job is given as --job=", word) : "flags begin with --",
                     " (sluice ", spec.name, " --help)"));
  }
  return parsed;
}

std::string HangingText(const std::string& left, const std::string& text) {
  constexpr size_t kWidth = 80;
  const std::string blanks(std::min(left.size(), kHelpColumn), ' ');
  std::string out;
  std::string line = left;
  bool begins = true;  // the line has no word yet
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!begins && line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(&out, line, "\n");
      line = blanks;
      begins = true;
    }
    absl::StrAppend(&line, begins ? "" : " ", word);
    begins = false;
  }
  return out + line;
}

std::string HelpText(const CommandSpec& spec) {
  std::string text = absl::StrCat("sluice ", spec.name, spec.words.empty() ? "" : " ", spec.words,
                                  spec.flags.empty() ? "" : " [flags]", "\n",
                                  HangingText("  ", spec.summary), "\n");
  if (!spec.flags.empty()) absl::StrAppend(&text, "\nFlags:\n");
  for (const FlagSpec& flag : spec.flags) {
    std::string left = absl::StrCat("  --", flag.name);
    if (!flag.value_name.empty()) absl::StrAppend(&left, "=", flag.value_name);
    // The helps stand in one column. A longer name moves only its own.
    left.resize(std::max<size_t>(left.size() + 2, kHelpColumn), ' ');
    std::string help = flag.help;
    if (!flag.default_value.empty()) absl::StrAppend(&help, " (default ", flag.default_value, ")");
    if (flag.repeated) absl::StrAppend(&help, "; may be repeated");
    absl::StrAppend(&text, HangingText(left, help), "\n");
  }
  if (!spec.examples.empty()) absl::StrAppend(&text, "\nExamples:\n", spec.examples);
  return text;
}

}  // namespace sluice::cli
