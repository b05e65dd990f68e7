#include "scheduler/files/curve_files.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/file_origin.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/output_folder.h"

namespace sluice {
namespace {

constexpr const char* kRerun = CurveFiles::kRerun;

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

bool CountsSteps(const std::string& tag) {
  return absl::StartsWith(tag, "train/") && tag != "train/epoch_loss";
}

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
  std::vector<EventPoint> kept;
  for (const EventPoint& point : earlier.points) {
    if (point.step > (CountsSteps(point.tag) ? from->step : from->epochs)) continue;
    curve->events_->Add(point.wall_time, point.step, point.tag, point.value);
    kept.push_back(point);
  }
  curve->Take(kept);
  SLUICE_RETURN_IF_ERROR(curve->events_->Flush());
  // The new file has all that still holds.
  if (replaces) {
    const std::string& path = curve->events_->path();
    curve->RemoveOthers(curve->folder_, {path.substr(path.rfind('/') + 1), kCurvesFile});
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
                                                 const std::string& host, absl::Time now,
                                                 uint64_t instance) {
  std::unique_ptr<CurveFiles> curve(new CurveFiles(env, dir, host));
  curve->continued_ = true;
  curve->folder_ = dir;
  // Begin takes the first free number, and the job has kept the folder locked.
  for (int number = 1; env->Exists(absl::StrCat(dir, "/", kRerun, number)); ++number)
    curve->folder_ = absl::StrCat(dir, "/", kRerun, number);
  std::vector<std::pair<absl::Time, std::string>> files;  // by begin
  for (const std::string& name : env->List(curve->folder_).value_or(std::vector<std::string>())) {
    if (!IsCurveName(name, host)) continue;
    std::string path = absl::StrCat(curve->folder_, "/", name);
    const auto file = ReadEndOfEventFile(env, path, 0);
    if (file.ok()) files.emplace_back(file->begun, std::move(path));
  }
  std::sort(files.begin(), files.end());
  // A long job has files that take long to read, and training waits for the scheduler meanwhile.
  std::vector<std::vector<EventPoint>> newest;  // the newest file first
  uint64_t left = kMostRead;
  bool whole = true;
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    auto end = ReadEndOfEventFile(env, file->second, left);
    if (!end.ok()) continue;
    whole = whole && end->whole;
    left -= std::min(left, end->bytes);
    newest.push_back(std::move(end->points));
  }
  if (!whole) curve->TakeThinned(instance);
  for (auto points = newest.rbegin(); points != newest.rend(); ++points) curve->Take(*points);
  // Otherwise Add tries again: a curve is no reason to end a job that runs.
  if (auto events = EventFile::Create(env, curve->folder_, host, now); events.ok())
    curve->events_ = *std::move(events);
  return curve;
}

absl::Status CurveFiles::Add(absl::Time now, const std::vector<Scalar>& points) {
  thinned_.Add(points);
  if (events_ == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(events_, EventFile::Create(env_, folder_, host_, now));
  }
  for (const Scalar& point : points) events_->Add(now, point.step, point.tag, point.value);
  return events_->Flush();
}

void CurveFiles::Take(const std::vector<EventPoint>& points) {
  std::vector<Scalar> scalars;
  scalars.reserve(points.size());
  for (const EventPoint& point : points) scalars.push_back({point.tag, point.step, point.value});
  thinned_.Add(scalars);
}

void CurveFiles::TakeThinned(uint64_t instance) {
  namespace dom = simdjson::dom;
  const std::string path = absl::StrCat(folder_, "/", kCurvesFile);
  const auto size = env_->FileSize(path);
  // No job writes a larger one.
  if (!size.ok() || *size > kMostRead || !IsOwnFile(env_, path, FileKind::kCurves)) return;
  dom::parser parser;
  const auto content = env_->ReadFile(path);
  bool head = true;
  for (const absl::string_view line : absl::StrSplit(content.value_or(""), '\n')) {
    dom::element object;
    if (parser.parse(simdjson::padded_string(line.data(), line.size())).get(object)) return;
    std::string_view name;
    if (head) {
      // In a folder whose event files somebody has removed, it may be another job's.
      if (object["instance"].get(name) || name != std::to_string(instance)) return;
      head = false;
      continue;
    }
    dom::array list;
    if (object["name"].get(name) || object["points"].get(list)) return;
    std::vector<Scalar> points;
    for (const dom::element one : list) {
      uint64_t x;
      double y;
      if (one.at(0).get(x)) return;
      if (one.at(1).get(y)) y = std::numeric_limits<double>::quiet_NaN();
      points.push_back({std::string(name), x, y});
    }
    thinned_.Add(points);
  }
}

absl::Status CurveFiles::Save(const std::string& job_id, uint64_t instance, bool ended) {
  std::string text = absl::StrCat(kOwnCurvesStart, "1, \"job\": ", JsonQuoted(Printable(job_id)),
                                  ", \"instance\": \"", instance,
                                  "\", \"ended\": ", ended ? "true" : "false", "}\n");
  for (const auto& [tag, curve] : thinned_.by_tag()) {
    absl::StrAppend(&text, "{\"name\": ", JsonQuoted(Printable(tag)), ", \"x\": \"",
                    CountsSteps(tag) ? "step" : "epoch", "\", \"points\": [");
    for (const ThinCurve::Point& point : curve.points()) {
      const bool first = &point == &curve.points().front();
      absl::StrAppend(&text, first ? "[" : ", [", point.x, ", ");
      char value[64];
      // The event file has floats, so further digits would differ after a resume.
      const auto y = static_cast<float>(point.y);
      const auto end = std::to_chars(value, value + sizeof(value), y);
      absl::StrAppend(&text, std::isfinite(y) ? std::string(value, end.ptr) : "null", "]");
    }
    text += "]}\n";
  }
  return env_->WriteFile(absl::StrCat(folder_, "/", kCurvesFile), {absl::string_view(text)});
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
  if (const std::string thinned = absl::StrCat(folder_, "/", kCurvesFile); env_->Exists(thinned)) {
    if (folder_ != dir_)
      SLUICE_RETURN_IF_ERROR(env_->RenameFile(thinned, absl::StrCat(dir_, "/", kCurvesFile)));
    names.emplace_back(kCurvesFile);
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
    if (name == kCurvesFile && !keep && IsOwnFile(env_, path, FileKind::kCurves))
      env_->RemoveFile(path).IgnoreError();
    // By name and by content. A file that somebody else put there is not ours to remove.
    if (keep || !IsCurveName(name, host_) || !IsOwnFile(env_, path, FileKind::kEvents)) continue;
    env_->RemoveFile(path).IgnoreError();
  }
}

}  // namespace sluice
