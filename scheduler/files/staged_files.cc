#include "scheduler/files/staged_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/output_folder.h"
#include "scheduler/files/curve_files.h"
#include "scheduler/files/event_file.h"

namespace sluice {
namespace {

bool IsCurve(const std::string& name) {
  return absl::StartsWith(name, EventFile::kPrefix) || name == kCurvesFile;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedFiles>> StagedFiles::Begin(Env* env,
                                                                const std::string& local) {
  std::error_code error;
  std::filesystem::remove_all(local, error);
  SLUICE_RETURN_IF_ERROR(Env::Real()->MakeDirs(local));
  return std::unique_ptr<StagedFiles>(new StagedFiles(env, local));
}

StagedFiles::~StagedFiles() {
  std::error_code error;
  std::filesystem::remove_all(local_, error);
}

absl::StatusOr<std::string> StagedFiles::StageCurves(const std::string& output_dir) {
  output_dir_ = output_dir;
  curves_ = absl::StrCat(local_, "/curves");
  SLUICE_RETURN_IF_ERROR(Env::Real()->MakeDirs(curves_));
  const auto copy = [&](const std::string& from, const std::string& to) -> absl::Status {
    SLUICE_ASSIGN_OR_RETURN(const std::string bytes, env_->ReadFile(from));
    SLUICE_RETURN_IF_ERROR(Env::Real()->WriteFile(to, {absl::string_view(bytes)}));
    SLUICE_ASSIGN_OR_RETURN(const FileInfo info, Env::Real()->Look(to));
    copies_[from] = {to, info.identity};
    return absl::OkStatus();
  };
  const auto names = env_->List(output_dir);
  if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::string there = absl::StrCat(output_dir, "/", name);
    const std::string here = absl::StrCat(curves_, "/", name);
    if (IsCurve(name)) SLUICE_RETURN_IF_ERROR(copy(there, here));
    if (!absl::StartsWith(name, CurveFiles::kRerun)) continue;
    SLUICE_RETURN_IF_ERROR(Env::Real()->MakeDirs(here));
    for (const std::string& one : env_->List(there).value_or(std::vector<std::string>())) {
      if (!IsCurve(one)) continue;
      SLUICE_RETURN_IF_ERROR(copy(absl::StrCat(there, "/", one), absl::StrCat(here, "/", one)));
    }
  }
  return curves_;
}

std::string StagedFiles::StageFile(const std::string& path) {
  const std::string here = absl::StrCat(local_, "/file-", files_.size());
  files_[here] = path;
  return here;
}

absl::Status StagedFiles::PutFile(const std::string& here, const std::string& there) {
  SLUICE_ASSIGN_OR_RETURN(const FileInfo info, Env::Real()->Look(here));
  const auto known = copies_.find(there);
  if (known != copies_.end() && known->second.identity == info.identity) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<NewFile> file, env_->StartFile(there));
  constexpr uint64_t kPieceBytes = 8 << 20;  // a trace may be larger than memory should hold
  for (uint64_t at = 0; at < info.identity.size; at += kPieceBytes) {
    const uint64_t n = std::min(kPieceBytes, info.identity.size - at);
    SLUICE_ASSIGN_OR_RETURN(const std::string piece, Env::Real()->ReadRange(here, at, n));
    SLUICE_RETURN_IF_ERROR(file->Append(piece));
  }
  SLUICE_RETURN_IF_ERROR(file->Finish());
  copies_[there] = {here, info.identity};
  return absl::OkStatus();
}

absl::Status StagedFiles::PutCurves(const std::string& here, const std::string& there) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, Env::Real()->List(here));
  absl::Status first;
  for (const std::string& name : names) {
    const std::string from = absl::StrCat(here, "/", name), to = absl::StrCat(there, "/", name);
    first.Update(IsCurve(name) ? PutFile(from, to) : PutCurves(from, to));
  }
  return first;
}

absl::Status StagedFiles::Put() {
  absl::Status first;
  if (!curves_.empty()) first.Update(PutCurves(curves_, output_dir_));
  for (const auto& [here, there] : files_) {
    if (Env::Real()->Exists(here)) first.Update(PutFile(here, there));
  }
  if (!first.ok()) return first;
  // After the new ones are in place.
  for (auto copy = copies_.begin(); copy != copies_.end();) {
    if (Env::Real()->Exists(copy->second.here)) {
      ++copy;
      continue;
    }
    first.Update(env_->RemoveFile(copy->first));
    copy = copies_.erase(copy);
  }
  return first;
}

}  // namespace sluice
