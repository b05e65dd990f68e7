#include "scheduler/files/curve_files.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/file_origin.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr char kRerun[] = "rerun-";

// All other curves have a point for each epoch. Programs name further curves of train/.
bool CountsSteps(const std::string& tag) {
  return absl::StartsWith(tag, "train/") && tag != "train/epoch_loss";
}

bool IsEventName(const std::string& name) { return absl::StartsWith(name, EventFile::kPrefix); }

bool ConsumeNumber(absl::string_view* text) {
  size_t digits = 0;
  while (digits < text->size() && absl::ascii_isdigit((*text)[digits])) ++digits;
  text->remove_prefix(digits);
  return digits > 0;
}

// True for names that EventFile and Complete give: <prefix><seconds>.<host>, then a number for each
// time that the name was taken. Copies that people make end differently. The curve may come from
// another host, whose name is assumed to be one word without dots. So "h.bak" counts as a copy of
// a curve of host "h", and on host "h" so does "h-old".
bool IsCurveName(absl::string_view name, absl::string_view host) {
  if (!absl::ConsumePrefix(&name, EventFile::kPrefix) || !ConsumeNumber(&name) ||
      !absl::ConsumePrefix(&name, ".")) {
    return false;
  }
  if (!absl::ConsumePrefix(&name, host) || (!name.empty() && absl::ascii_isalnum(name[0]))) {
    size_t word = 0;
    while (word < name.size() && (absl::ascii_isalnum(name[word]) || name[word] == '-')) ++word;
    if (word == 0) return false;
    name.remove_prefix(word);
  }
  while (!name.empty()) {
    if (!absl::ConsumePrefix(&name, ".") || !ConsumeNumber(&name)) return false;
  }
  return true;
}

bool IsRerunName(absl::string_view name) {
  return absl::ConsumePrefix(&name, kRerun) && ConsumeNumber(&name) && name.empty();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CurveFiles>> CurveFiles::Begin(
    Env* env, const std::string& dir, const std::string& host, absl::Time now,
    const std::optional<CurvePosition>& from) {
  std::unique_ptr<CurveFiles> curve(new CurveFiles(env, dir, host));
  curve->folder_ = dir;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, env->List(dir));
  std::vector<std::string> folders = {dir};
  for (int number = 1; env->Exists(absl::StrCat(dir, "/", kRerun, number)); ++number)
    folders.push_back(absl::StrCat(dir, "/", kRerun, number));
  Earlier earlier;
  if (from) earlier = curve->FindEarlier(folders, from->made);
  // Only the newest curve may be replaced: one that began after the checkpoint is another run's.
  const bool replaces = earlier.folder == folders.back();
  if (replaces) {
    curve->folder_ = earlier.folder;
  } else if (std::any_of(names.begin(), names.end(), IsEventName)) {
    absl::Status made = absl::AlreadyExistsError("");
    // In a folder of its own: the earlier curve stays in place until this job is done.
    for (int number = 1; absl::IsAlreadyExists(made); ++number) {
      curve->folder_ = absl::StrCat(dir, "/", kRerun, number);
      made = env->MakeNewDir(curve->folder_);
    }
    SLUICE_RETURN_IF_ERROR(made);
  }
  // A file that replaces an earlier one belongs to the run that began then. A resume from the same
  // checkpoint must find it again.
  const absl::Time begun = replaces ? earlier.begun : now;
  SLUICE_ASSIGN_OR_RETURN(curve->events_, EventFile::Create(env, curve->folder_, host, now, begun));
  if (earlier.folder.empty()) return curve;
  curve->events_->AddRestart(now);
  for (const EventPoint& point : earlier.points) {
    if (point.step <= (CountsSteps(point.tag) ? from->step : from->epochs))
      curve->events_->Add(point.wall_time, point.step, point.tag, point.value);
  }
  SLUICE_RETURN_IF_ERROR(curve->events_->Flush());
  // The new file has all that still holds.
  if (replaces) {
    const std::string& path = curve->events_->path();
    curve->RemoveOthers(curve->folder_, {path.substr(path.rfind('/') + 1)});
  }
  return curve;
}

CurveFiles::Earlier CurveFiles::FindEarlier(const std::vector<std::string>& folders,
                                            absl::Time made) const {
  // A folder has the files of one run; a job that several schedulers have led has several.
  std::vector<std::pair<std::string, std::vector<EventFileContents>>> runs;
  for (const std::string& folder : folders) {
    std::vector<EventFileContents> files;
    for (const std::string& name : env_->List(folder).value_or(std::vector<std::string>())) {
      if (!IsCurveName(name, host_)) continue;
      auto file = ReadEventFile(env_, absl::StrCat(folder, "/", name));
      if (file.ok()) files.push_back(*std::move(file));
    }
    std::stable_sort(
        files.begin(), files.end(),
        [](const EventFileContents& a, const EventFileContents& b) { return a.begun < b.begun; });
    if (!files.empty()) runs.emplace_back(folder, std::move(files));
  }
  // Runs follow each other, so the last one that began before the checkpoint has made it. When the
  // clock was set back during a run, its checkpoints seem to be older than the run, but its points
  // show that.
  for (const auto time : {&EventFileContents::begun, &EventFileContents::earliest}) {
    Earlier newest;
    for (auto& [folder, files] : runs) {
      absl::Time begun = absl::InfinitePast();
      for (const EventFileContents& file : files) {
        if (file.*time <= made) begun = std::max(begun, file.begun);
      }
      if (begun == absl::InfinitePast() || begun < newest.begun) continue;
      newest = {folder, begun, {}};
      for (const EventFileContents& file : files)
        newest.points.insert(newest.points.end(), file.points.begin(), file.points.end());
    }
    if (!newest.folder.empty()) return newest;
  }
  return {};
}

std::unique_ptr<CurveFiles> CurveFiles::Continue(Env* env, const std::string& dir,
                                                 const std::string& host, absl::Time now) {
  std::unique_ptr<CurveFiles> curve(new CurveFiles(env, dir, host));
  curve->continued_ = true;
  curve->folder_ = dir;
  // Begin takes the first free number, and the job has kept the folder locked.
  for (int number = 1; env->Exists(absl::StrCat(dir, "/", kRerun, number)); ++number)
    curve->folder_ = absl::StrCat(dir, "/", kRerun, number);
  // Otherwise Add tries again: a curve is no reason to end a job that runs.
  if (auto events = EventFile::Create(env, curve->folder_, host, now); events.ok())
    curve->events_ = *std::move(events);
  return curve;
}

absl::Status CurveFiles::Add(absl::Time now, const std::vector<Scalar>& points) {
  if (events_ == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(events_, EventFile::Create(env_, folder_, host_, now));
  }
  for (const Scalar& point : points) events_->Add(now, point.step, point.tag, point.value);
  return events_->Flush();
}

absl::Status CurveFiles::Complete() {
  std::vector<std::string> names;
  if (!continued_) {
    if (events_ == nullptr) return absl::OkStatus();  // complete already
    const std::string& path = events_->path();
    names = {path.substr(path.rfind('/') + 1)};
  }
  events_ = nullptr;
  if (continued_) {
    SLUICE_ASSIGN_OR_RETURN(names, env_->List(folder_));
    names.erase(std::remove_if(names.begin(), names.end(),
                               [&](const std::string& one) { return !IsCurveName(one, host_); }),
                names.end());
  }
  if (folder_ != dir_) {
    for (std::string& name : names) {
      const std::string from = absl::StrCat(folder_, "/", name);
      // Two jobs that begin in the same second on the same host choose the same name.
      while (env_->Exists(absl::StrCat(dir_, "/", name))) name += ".1";
      SLUICE_RETURN_IF_ERROR(env_->RenameFile(from, absl::StrCat(dir_, "/", name)));
    }
  }
  // After the new curve is in place, so that the folder is never without one.
  RemoveOthers(dir_, names);
  const std::vector<std::string> left = env_->List(dir_).value_or(std::vector<std::string>());
  for (const std::string& folder : left) {
    if (!IsRerunName(folder)) continue;
    RemoveOthers(absl::StrCat(dir_, "/", folder), {});
    env_->RemoveDir(absl::StrCat(dir_, "/", folder)).IgnoreError();  // fails unless empty
  }
  return absl::OkStatus();
}

void CurveFiles::RemoveOthers(const std::string& folder, const std::vector<std::string>& kept) {
  for (const std::string& name : env_->List(folder).value_or(std::vector<std::string>())) {
    const std::string path = absl::StrCat(folder, "/", name);
    const bool keep = std::find(kept.begin(), kept.end(), name) != kept.end();
    // By name and by content. A file that somebody else put there is not ours to remove.
    if (keep || !IsCurveName(name, host_) || !IsOwnFile(env_, path, FileKind::kEvents)) continue;
    env_->RemoveFile(path).IgnoreError();
  }
}

}  // namespace sluice
