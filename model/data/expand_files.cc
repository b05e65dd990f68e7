#include "model/data/expand_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/local_path.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// The outermost folder on the way to `path` that may not be entered.
std::string ClosedFolder(const std::string& path) {
  namespace fs = std::filesystem;
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
  absl::Status Add(const std::string& pattern) {
    if (HasScheme(pattern)) return AddUrl(pattern);
    // The name of a file, even if it has wildcards.
    for (const std::string& name : {pattern, Unmarked(pattern)}) {
      SLUICE_ASSIGN_OR_RETURN(const bool found, AddName(name, pattern));
      if (found) return absl::OkStatus();
    }
    return AddMatches(pattern);
  }

  std::vector<FoundFile>& files() { return files_; }

 private:
  // The place finds the files: what is a name, and what a pattern, differs between places.
  absl::Status AddUrl(const std::string& pattern) {
    if (const std::string problem = DataUrlProblem(pattern); !problem.empty())
      return absl::InvalidArgumentError(absl::StrCat("data file \"", pattern, "\" ", problem));
    auto found = env_->Match(pattern, names_left_);
    if (!found.ok()) {
      return absl::Status(found.status().code(), absl::StrCat("cannot find data file \"", pattern,
                                                              "\": ", found.status().message()));
    }
    names_left_ -= found->names_read;
    if (found->too_many_names) {
      return absl::InvalidArgumentError(
          absl::StrCat("the search for the data files \"", pattern, "\" reads more than ",
                       limits_.entries, " names; use no wildcard before the last '/'"));
    }
    if (found->paths.empty())
      return absl::NotFoundError(absl::StrCat("no data file matches \"", pattern, "\""));
    for (std::string& path : found->paths)
      SLUICE_RETURN_IF_ERROR(Take(std::move(path), FileIdentity(), pattern));
    return absl::OkStatus();
  }

  // False when there is no file `name`.
  absl::StatusOr<bool> AddName(const std::string& name, const std::string& pattern) {
    const auto info = env_->Look(name);
    if (absl::IsPermissionDenied(info.status()))
      return CannotRead(ClosedFolder(name), info.status(), pattern);
    if (!info.ok()) return false;
    if (info->kind == FileInfo::Kind::kFolder) {
      return absl::NotFoundError(
          absl::StrCat("data file \"", name, "\" is a folder; write \"", name, "/*\""));
    }
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
  std::vector<FoundFile> files_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandFiles(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, Env* env,
    const std::string& base, const ExpandLimits& limits) {
  Expansion expansion(env, base, limits);
  for (const std::string& pattern : patterns) SLUICE_RETURN_IF_ERROR(expansion.Add(pattern));
  return EachOnce(std::move(expansion.files()));
}

absl::StatusOr<std::vector<std::string>> WarnOfFilesNamedAgain(const JobConfig& job, Env* env,
                                                               const ExpandLimits& limits) {
  std::vector<std::string> warnings;
  const auto check =
      [&](const char* field,
          const google::protobuf::RepeatedPtrField<std::string>& patterns) -> absl::Status {
    Expansion expansion(env, "", limits);
    for (const std::string& pattern : patterns) {
      const absl::Status added = expansion.Add(pattern);
      if (absl::IsInvalidArgument(added))
        return absl::InvalidArgumentError(absl::StrCat(field, ": ", added.message()));
      if (!added.ok()) return absl::OkStatus();  // reading the files reports the reason
    }
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
