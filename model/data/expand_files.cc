#include "model/data/expand_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/civil_time.h"
#include "common/base/local_path.h"
#include "common/base/status_macros.h"
#include "model/data/wait_together.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// The outermost folder on the way to `path` that may not be entered.
std::string ClosedFolder(const std::string& path) {
  fs::path reached;
  struct stat info;
  for (const fs::path& part : fs::path(path)) {
    reached /= part;
    if (stat(reached.c_str(), &info) != 0 && errno == EACCES) break;
  }
  return reached.parent_path().string();
}

// `why`: from Env::OpenFile.
absl::Status CannotRead(const std::string& folder, const absl::Status& why,
                        const std::string& pattern) {
  const bool by_system = why.message() == std::strerror(EACCES);
  return absl::PermissionDeniedError(absl::StrCat(
      "cannot read the folder ", folder, " for the data files \"", pattern, "\": ", why.message(),
      by_system ? "; let this user read it (chmod, chown), or correct the path" : ""));
}

// The name that a pattern stands for when all its wildcards are marked as plain characters.
std::string Unmarked(const std::string& pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    name += pattern[i];
  }
  return name;
}

// The pattern that finds only the file or folder of that name.
std::string Marked(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (absl::StrContains("*?[\\", c)) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

constexpr int64_t kMostOfRange = 100'000;

// A day written as 2026-11-29. False for any other text.
bool ParseDay(const std::string& text, absl::CivilDay* day) {
  return text.size() == 10 && text[4] == '-' && text[7] == '-' && absl::ParseCivilTime(text, day) &&
         absl::FormatCivilTime(*day) == text;
}

bool IsDigits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

// The texts of {first..last}: days, or numbers, with zeros in front where `first` has them. Empty:
// it is no such range.
absl::StatusOr<std::vector<std::string>> TextsOfRange(const std::string& first,
                                                      const std::string& last) {
  std::vector<std::string> texts;
  absl::CivilDay from_day, to_day;
  int64_t from = 0, to = 0;
  const bool days = ParseDay(first, &from_day) && ParseDay(last, &to_day);
  if (days) {
    to = to_day - from_day;
  } else if (!IsDigits(first) || !IsDigits(last) || !absl::SimpleAtoi(first, &from) ||
             !absl::SimpleAtoi(last, &to)) {
    return texts;
  }
  if (to < from || to - from >= kMostOfRange) {
    return absl::InvalidArgumentError(
        absl::StrCat("{", first, "..", last, "} ", to < from ? "falls" : "is too long",
                     "; give a range that rises, of at most ", kMostOfRange));
  }
  const bool zeros = first.size() > 1 && first[0] == '0';
  for (int64_t i = from; i <= to; ++i) {
    texts.push_back(days    ? absl::FormatCivilTime(from_day + i)
                    : zeros ? absl::StrFormat("%0*d", static_cast<int>(first.size()), i)
                            : absl::StrCat(i));
  }
  return texts;
}

// The patterns that one with ranges stands for, such as day={2026-11-01..2026-11-30}; itself, if it
// has none.
absl::StatusOr<std::vector<std::string>> WithoutRanges(const std::string& pattern) {
  for (size_t open = pattern.find('{'); open != std::string::npos;
       open = pattern.find('{', open + 1)) {
    const size_t close = pattern.find('}', open);
    const size_t dots = pattern.find("..", open);
    if (close == std::string::npos || dots == std::string::npos || dots > close) continue;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                            TextsOfRange(pattern.substr(open + 1, dots - open - 1),
                                         pattern.substr(dots + 2, close - dots - 2)));
    if (texts.empty()) continue;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> rests,
                            WithoutRanges(pattern.substr(close + 1)));
    if (texts.size() * rests.size() > static_cast<size_t>(kMostOfRange)) {
      return absl::InvalidArgumentError(
          absl::StrCat("stands for more than ", kMostOfRange, " patterns; use a wildcard"));
    }
    std::vector<std::string> patterns;
    for (const std::string& text : texts) {
      for (const std::string& rest : rests)
        patterns.push_back(absl::StrCat(pattern.substr(0, open), text, rest));
    }
    return patterns;
  }
  return std::vector<std::string>{pattern};
}

// Whether a wildcard at the beginning of a name has matched a name that begins with '_' or '.':
// writers keep marks and unfinished files under such names.
bool IsHidden(const std::string& path, const std::string& pattern) {
  const std::vector<absl::string_view> names = absl::StrSplit(path, '/'),
                                       marks = absl::StrSplit(pattern, '/');
  for (size_t i = 0; i < std::min(names.size(), marks.size()); ++i) {
    // From the end, since the pattern may begin with another spelling of the folders.
    const absl::string_view name = names[names.size() - 1 - i], mark = marks[marks.size() - 1 - i];
    if (!name.empty() && !mark.empty() && (name[0] == '_' || name[0] == '.') &&
        (mark[0] == '*' || mark[0] == '?' || mark[0] == '['))
      return true;
  }
  return false;
}

struct FoundFile {
  std::string path;
  // Both 0: not known, or a file of a store, which has one path.
  uint64_t device = 0, inode = 0;
};

// The files in the order of their paths, each once, under its first path. *again, unless null: the
// first path that leads to a file that has come before, and *first_path of that file.
std::vector<std::string> EachOnce(std::vector<FoundFile> found, std::string* again = nullptr,
                                  std::string* first_path = nullptr) {
  std::stable_sort(found.begin(), found.end(),
                   [](const FoundFile& a, const FoundFile& b) { return a.path < b.path; });
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, std::string> path_of;
  std::vector<std::string> files;
  for (FoundFile& file : found) {
    const bool repeated = !files.empty() && files.back() == file.path;
    const auto [known, is_new] = path_of.try_emplace({file.device, file.inode}, file.path);
    if (!repeated && (is_new || file.inode == 0)) {
      files.push_back(std::move(file.path));
    } else if (again != nullptr && again->empty()) {
      *first_path = repeated ? file.path : known->second;
      *again = std::move(file.path);
    }
  }
  return files;
}

// Collects the files that the patterns of one field match, with repetitions.
class Expansion {
 public:
  Expansion(Env* env, std::string base, const ExpandLimits& limits)
      : env_(env), base_(std::move(base)), limits_(limits), names_left_(limits.entries) {}

  // Statuses as ExpandFiles.
  absl::Status Add(const google::protobuf::RepeatedPtrField<std::string>& patterns) {
    MatchNames(patterns);
    for (const std::string& pattern : patterns) SLUICE_RETURN_IF_ERROR(AddPattern(pattern));
    return absl::OkStatus();
  }

  std::vector<FoundFile>& files() { return files_; }

 private:
  // Asks places for the URLs that are names, several at once: each answer may take long.
  void MatchNames(const google::protobuf::RepeatedPtrField<std::string>& patterns) {
    for (const std::string& pattern : patterns) {
      if (!HasScheme(pattern) || !DataUrlProblem(pattern).empty()) continue;
      for (std::string& one : WithoutRanges(pattern).value_or(std::vector<std::string>()))
        if (one.find_first_of("*?[\\") == std::string::npos)
          matched_.try_emplace(std::move(one), FileMatches());
    }
    std::vector<decltype(matched_)::pointer> asked;
    for (auto& name : matched_) asked.push_back(&name);
    WaitTogether(asked.size(),
                 [&](size_t i) { asked[i]->second = env_->Match(asked[i]->first, 1); });
  }

  absl::Status AddPattern(const std::string& pattern) {
    if (!HasScheme(pattern)) {
      // The name of a file, even if it has wildcards.
      for (const std::string& name : {pattern, Unmarked(pattern)}) {
        SLUICE_ASSIGN_OR_RETURN(const bool found, AddName(name, pattern));
        if (found) return absl::OkStatus();
      }
    }
    const auto patterns = WithoutRanges(pattern);
    if (!patterns.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("data file \"", pattern, "\": ", patterns.status().message()));
    }
    for (const std::string& one : *patterns) SLUICE_RETURN_IF_ERROR(AddOne(one));
    return absl::OkStatus();
  }

  absl::Status AddOne(const std::string& pattern) {
    if (HasScheme(pattern)) return AddUrl(pattern);
    return AddMatches(pattern);
  }

  // The place finds the files: what is a name, and what a pattern, differs between places.
  absl::Status AddUrl(const std::string& pattern) {
    if (const std::string problem = DataUrlProblem(pattern); !problem.empty())
      return absl::InvalidArgumentError(absl::StrCat("data file \"", pattern, "\" ", problem));
    const auto known = matched_.find(pattern);
    auto found = known != matched_.end() ? known->second : env_->Match(pattern, names_left_);
    if (!found.ok()) {
      const bool missing = absl::IsNotFound(found.status()) && absl::StartsWith(pattern, "s3://") &&
                           pattern.find_first_of("*?[{") == std::string::npos;
      if (const std::string below = missing ? PatternBelow(pattern) : ""; !below.empty())
        return IsFolder(pattern, below);
      return absl::Status(found.status().code(), absl::StrCat("cannot find data file \"", pattern,
                                                              "\": ", found.status().message()));
    }
    names_left_ -= std::min(names_left_, found->names_read);
    if (found->too_many_names) {
      return absl::InvalidArgumentError(
          absl::StrCat("the search for the data files \"", pattern, "\" reads more than ",
                       limits_.entries, " names; use no wildcard before the last '/'"));
    }
    if (found->paths.empty())
      return absl::NotFoundError(absl::StrCat("no data file matches \"", pattern, "\""));
    const size_t before = files_.size();
    for (std::string& path : found->paths) {
      if (!IsHidden(path, pattern))
        SLUICE_RETURN_IF_ERROR(Take(std::move(path), FileIdentity(), pattern));
    }
    if (files_.size() == before) {
      return absl::NotFoundError(absl::StrCat("no data file matches \"", pattern,
                                              "\" but those whose names begin with '_' or '.'"));
    }
    return absl::OkStatus();
  }

  static absl::Status IsFolder(const std::string& name, const std::string& below) {
    return absl::NotFoundError(absl::StrCat("data file \"", name, "\" is a folder",
                                            below.empty()
                                                ? " without data files; name others"
                                                : absl::StrCat("; write \"", below, "\"")));
  }

  // A pattern of the files nearest below a folder, such as DIR/*/*.csv or DIR/day=*/*; "": there
  // are none a few folders further down.
  std::string PatternBelow(std::string folder) {
    constexpr int kMostFolders = 5;
    constexpr size_t kMostNames = 10'000;
    while (absl::EndsWith(folder, "/")) folder.pop_back();
    const std::string marked = Marked(folder);
    std::string below = marked;
    for (int i = 0; i < kMostFolders; ++i) {
      below += "/*";
      const auto found = env_->Match(below, kMostNames);
      if (!found.ok()) break;
      std::string first;
      std::optional<std::string> ending;
      for (const std::string& path : found->paths) {
        const bool folder_there = !HasScheme(path) && env_->Look(path).value_or(FileInfo()).kind ==
                                                          FileInfo::Kind::kFolder;
        if (folder_there || IsHidden(path, below)) continue;
        if (first.empty()) first = path;
        const std::string one = fs::path(path).extension();
        ending = ending.value_or(one) == one ? one : "";
      }
      if (first.empty()) continue;
      const std::vector<std::string> names = absl::StrSplit(first.substr(folder.size() + 1), '/');
      std::string pattern = marked;
      for (size_t at = 0; at + 1 < names.size(); ++at) {
        // Named by their key, the folders are columns.
        const size_t equals = names[at].find('=');
        absl::StrAppend(&pattern, "/",
                        equals == std::string::npos ? "" : names[at].substr(0, equals + 1), "*");
      }
      return absl::StrCat(pattern, "/*", *ending);
    }
    return "";
  }

  // False when there is no file `name`.
  absl::StatusOr<bool> AddName(const std::string& name, const std::string& pattern) {
    const auto info = env_->Look(name);
    if (absl::IsPermissionDenied(info.status()))
      return CannotRead(ClosedFolder(name), info.status(), pattern);
    if (!info.ok()) return false;
    if (info->kind == FileInfo::Kind::kFolder) return IsFolder(name, PatternBelow(name));
    SLUICE_RETURN_IF_ERROR(Take(name, info->identity, pattern));
    return true;
  }

  absl::Status AddMatches(const std::string& pattern) {
    const size_t before = files_.size();
    SLUICE_ASSIGN_OR_RETURN(FileMatches found, env_->Match(pattern, names_left_));
    names_left_ -= found.names_read;
    if (found.too_many_names) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the folders that the data files \"", pattern, "\" lead to have more than ",
          limits_.entries,
          " names, the most that are read for one list of data files; put the files into folders "
          "of their own, and use no wildcard for folders that hold other things"));
    }
    for (std::string& path : found.paths) {
      if (IsHidden(path, pattern)) continue;
      // Reading a file that cannot be looked at reports the reason.
      const FileInfo info = env_->Look(path).value_or(FileInfo());
      if (info.kind == FileInfo::Kind::kFolder) continue;
      SLUICE_RETURN_IF_ERROR(Take(std::move(path), info.identity, pattern));
    }
    // Fails even when other folders have matches, because the files of this one would be left out
    // silently.
    if (!found.why.ok()) return CannotRead(found.unreadable, found.why, pattern);
    if (files_.size() > before) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("no data file matches \"", pattern,
                                            "\"; relative paths are resolved against ", base_));
  }

  absl::Status Take(std::string path, const FileIdentity& identity, const std::string& pattern) {
    if (files_.size() == limits_.files) {
      return absl::InvalidArgumentError(absl::StrCat(
          "with \"", pattern, "\" there are more than ", limits_.files,
          " data files, the most of one list; merge small files, or name fewer of them"));
    }
    FoundFile file{std::move(path)};
    if (!limits_.keep_aliases) {
      file.device = identity.device;
      file.inode = identity.inode;
    }
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }

  Env* const env_;
  const std::string base_;
  const ExpandLimits limits_;
  size_t names_left_;
  std::map<std::string, absl::StatusOr<FileMatches>> matched_;  // by URL
  std::vector<FoundFile> files_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandFiles(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, Env* env,
    const std::string& base, const ExpandLimits& limits) {
  Expansion expansion(env, base, limits);
  SLUICE_RETURN_IF_ERROR(expansion.Add(patterns));
  return EachOnce(std::move(expansion.files()));
}

absl::StatusOr<std::vector<std::string>> WarnOfFilesNamedAgain(const JobConfig& job, Env* env,
                                                               const ExpandLimits& limits) {
  std::vector<std::string> warnings;
  const auto check =
      [&](const char* field,
          const google::protobuf::RepeatedPtrField<std::string>& patterns) -> absl::Status {
    Expansion expansion(env, "", limits);
    const absl::Status added = expansion.Add(patterns);
    if (absl::IsInvalidArgument(added))
      return absl::InvalidArgumentError(absl::StrCat(field, ": ", added.message()));
    if (!added.ok()) return absl::OkStatus();  // reading the files reports the reason
    const size_t named = expansion.files().size();
    std::string again, first_path;
    const size_t different = EachOnce(std::move(expansion.files()), &again, &first_path).size();
    if (different == named) return absl::OkStatus();
    warnings.push_back(
        absl::StrCat(field, " names ", named, " files, of which ", different, " are different (",
                     again == first_path ? absl::StrCat(again, " comes again")
                                         : absl::StrCat(again, " is the same file as ", first_path),
                     "); each is read once"));
    return absl::OkStatus();
  };
  if (!job.evaluate_only())
    SLUICE_RETURN_IF_ERROR(check("data.train_files", job.data().train_files()));
  SLUICE_RETURN_IF_ERROR(check("data.eval_files", job.data().eval_files()));
  return warnings;
}

}  // namespace sluice
