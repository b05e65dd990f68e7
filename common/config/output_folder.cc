#include "common/config/output_folder.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"

namespace sluice {
namespace {

constexpr char kField[] = "output_dir";
// No earlier version has written a longer configuration.
constexpr uint64_t kMostConfigBytes = 16 << 20;

std::string WithoutSlashes(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

// Earlier versions printed the effective configuration without kOwnConfigLine. Three signs together
// identify such a file: its exact form, an output_dir that names this folder, and a result next to
// it. A file that a person wrote, formatted or moved here lacks one of them. The text is read once,
// through `env`: whoever may write to the folder could otherwise put a link or a pipe in its place.
bool IsEffectiveConfigOf(Env* env, const std::string& dir, const std::string& path) {
  if (!IsOwnFile(env, dir + "/result.json", FileKind::kResult)) return false;
  const auto text = env->ReadRange(path, 0, kMostConfigBytes + 1);
  JobConfig config;
  return text.ok() && text->size() <= kMostConfigBytes &&
         ParseTextproto(*text, path, &config, nullptr).ok() && ToTextproto(config) == *text &&
         IsSameFile(env, config.output_dir(), dir);
}

// Models of version 1 have a job.textproto without kOwnConfigLine.
bool IsModelOfVersion1(Env* env, const std::string& dir) {
  const std::string manifest = dir + "/MANIFEST";
  constexpr absl::string_view kVersion1 = "version: 1\n";
  return IsOwnFile(env, manifest, FileKind::kManifest) &&
         env->ReadRange(manifest, 0, kVersion1.size()).value_or("") == kVersion1;
}

bool IsOfAnEarlierVersion(Env* env, const std::string& dir, const OutputFile& file) {
  if (file.kind != FileKind::kJobConfig) return false;
  return file.of_model ? IsModelOfVersion1(env, dir + "/model")
                       : IsEffectiveConfigOf(env, dir, file.path);
}

}  // namespace

std::vector<OutputFile> OutputFilesOf(std::string dir) {
  if (dir.empty()) return {};
  dir = WithoutSlashes(std::move(dir));
  return {{dir + "/job.textproto", FileKind::kJobConfig},
          {absl::StrCat(dir, "/", kResultFile), FileKind::kResult},
          {absl::StrCat(dir, "/", kCurvesFile), FileKind::kCurves},
          {absl::StrCat(dir, "/", kModelResultFile), FileKind::kResult},
          {absl::StrCat(dir, "/", kReplacedResultFile), FileKind::kResult},
          {dir + "/model/MANIFEST", FileKind::kManifest, true},
          {dir + "/model/job.textproto", FileKind::kJobConfig, true}};
}

std::string ModelFolder(const JobConfig& config) { return config.output_dir() + "/model"; }

std::string ExportRoot(const JobConfig& job) {
  if (std::string dir = job.export_().dir(); !dir.empty()) {
    while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
    return dir;
  }
  return job.output_dir().empty() ? "" : absl::StrCat(job.output_dir(), "/export");
}

absl::Status CheckOutputFolder(Env* env, const std::string& dir, bool overwrite) {
  const std::string folder = WithoutSlashes(dir);
  // --overwrite does not allow this: the job's configuration would replace the one that the model
  // is read with.
  if (const std::string manifest = folder + "/MANIFEST";
      IsOwnFile(env, manifest, FileKind::kManifest)) {
    return absl::AlreadyExistsError(
        absl::StrCat(kField, ": ", folder, " is the folder of a saved model (", manifest,
                     "), which the job's files would damage; give another --output_dir"));
  }
  for (const OutputFile& file : OutputFilesOf(folder)) {
    const absl::Status replaceable = CheckReplaceable(env, file.path, file.kind, overwrite, kField);
    if (!replaceable.ok() && !IsOfAnEarlierVersion(env, folder, file)) return replaceable;
  }
  return absl::OkStatus();
}

}  // namespace sluice
