#include "cli/screen/completion.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace sluice::cli {
namespace {

using Words = std::vector<std::string>;

// In helps, what is typed as it stands is in small letters ("auto", "list"), and what stands for
// something else is in capitals ("FILE").
bool IsTypedAsIs(const std::string& word) {
  return !word.empty() && absl::ascii_islower(word[0]) &&
         std::all_of(word.begin(), word.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '-';
         });
}

Words TypedAsIs(const std::string& text) {
  Words words;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" |[]"))) {
    if (IsTypedAsIs(std::string(word))) words.emplace_back(word);
  }
  return words;
}

bool TakesValue(const FlagSpec& flag) { return flag.kind != FlagKind::kBool; }

// The values that the flag takes, if they can be listed.
Words ListedValues(const FlagSpec& flag) {
  if (flag.kind == FlagKind::kBool) return {"true", "false"};
  Words values = TypedAsIs(flag.value_name);
  if (values.empty() && flag.value_name == "BOOL") values = {"true", "false"};
  return values;
}

bool IsFile(const FlagSpec& flag) { return absl::StrContains(flag.value_name, "FILE"); }
bool IsFolder(const FlagSpec& flag) { return absl::StrContains(flag.value_name, "DIR"); }

std::string InQuotes(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// A part of what _arguments reads, in which : and brackets separate the parts.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {":", "\\:"}, {"[", "\\["}, {"]", "\\]"}});
}

std::string ZshAction(const FlagSpec& flag) {
  const Words values = ListedValues(flag);
  if (!values.empty()) return absl::StrCat("(", absl::StrJoin(values, " "), ")");
  return IsFile(flag) ? "_files" : IsFolder(flag) ? "_files -/" : " ";
}

std::string ZshFlag(const FlagSpec& flag) {
  std::string text = absl::StrCat(flag.repeated ? "*" : "", "--", flag.name);
  if (TakesValue(flag)) absl::StrAppend(&text, "=");
  absl::StrAppend(&text, "[", ZshText(flag.help), "]");
  if (TakesValue(flag)) absl::StrAppend(&text, ":", ZshText(flag.value_name), ":", ZshAction(flag));
  return InQuotes(text);
}

}  // namespace

std::string BashCompletion(const std::vector<CommandSpec>& commands) {
  Words names;
  std::string cases;
  for (const CommandSpec& command : commands) {
    names.push_back(command.name);
    Words flags, values;
    for (const FlagSpec& flag : command.flags) {
      flags.push_back(absl::StrCat("--", flag.name, TakesValue(flag) ? "=" : ""));
      const std::string begin = absl::StrCat("        --", flag.name, ") kind=");
      if (const Words listed = ListedValues(flag); !listed.empty()) {
        values.push_back(absl::StrCat(begin, "words values='", absl::StrJoin(listed, " "), "' ;;"));
      } else if (TakesValue(flag)) {
        values.push_back(absl::StrCat(begin,
                                      IsFile(flag)     ? "file"
                                      : IsFolder(flag) ? "folder"
                                                       : "text",
                                      " ;;"));
      }
    }
    flags.push_back("--help");
    absl::StrAppend(&cases, "    ", command.name, ")\n      flags='", absl::StrJoin(flags, " "),
                    "'\n      words='", absl::StrJoin(TypedAsIs(command.words), " "), "'\n");
    if (!values.empty()) {
      absl::StrAppend(&cases, "      case $flag in\n", absl::StrJoin(values, "\n"),
                      "\n      esac\n");
    }
    absl::StrAppend(&cases, "      ;;\n");
  }
  // Bash separates words at "=", too.
  return absl::StrCat(R"(# Completion of sluice for bash; made by: sluice completion bash
_sluice() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local flag='' flags='' words='' kind='' values=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W ')",
                      absl::StrJoin(names, " "), R"( --help --version' -- "$current")
    return
  fi
  if [ "$current" = = ]; then
    flag=$before current=''
  elif [ "$before" = = ]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  fi
  local given=$flag
  [ -n "$given" ] || flag=$before
  case ${COMP_WORDS[1]} in
)",
                      cases, R"(  esac
  # A switch takes its value only after "=".
  [ -n "$given" ] || case " $flags " in *" $flag "*) kind='' ;; esac
  case $kind in
    words) mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current"); return ;;
    file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    text) return ;;
  esac
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
    [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
  elif [ "$COMP_CWORD" -eq 2 ] && [ -n "$words" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -F _sluice sluice
)");
}

std::string ZshCompletion(const std::vector<CommandSpec>& commands) {
  std::string text =
      "#compdef sluice\n"
      "# Completion of sluice for zsh; made by: sluice completion zsh\n"
      "_sluice() {\n"
      "  local -a commands\n"
      "  commands=(\n";
  std::string cases;
  for (const CommandSpec& command : commands) {
    const std::string entry =
        absl::StrCat(command.name, ":", absl::StrReplaceAll(command.summary, {{":", "\\:"}}));
    absl::StrAppend(&text, "    ", InQuotes(entry), "\n");
    absl::StrAppend(&cases, "    ", command.name, ")\n      _arguments");
    for (const FlagSpec& flag : command.flags)
      absl::StrAppend(&cases, " \\\n        ", ZshFlag(flag));
    absl::StrAppend(&cases, " \\\n        '--help[show the flags]'");
    if (const Words words = TypedAsIs(command.words); !words.empty())
      absl::StrAppend(&cases, " \\\n        '1:word:(", absl::StrJoin(words, " "), ")'");
    absl::StrAppend(&cases, " \\\n        '*:file:_files'\n      ;;\n");
  }
  return absl::StrCat(text, R"(  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
)",
                      cases, R"(  esac
}
if [ "$funcstack[1]" = _sluice ]; then
  _sluice "$@"
else
  compdef _sluice sluice
fi
)");
}

}  // namespace sluice::cli
