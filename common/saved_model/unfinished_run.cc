#include "common/saved_model/unfinished_run.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/file_origin.h"
#include "common/saved_model/saved_model.h"

namespace sluice {
namespace {

// How a run that has finished tells its checkpoints from those of others.
struct FinishedRun {
  bool lists = false;                    // false: the result is of an earlier version
  std::vector<std::string> checkpoints;  // their names
  uint64_t newest_step = 0;              // 0: it made none, and none was there
};

std::string NameOf(const CheckpointInfo& checkpoint) {
  std::string id = SaveIdOfCheckpoint(checkpoint.manifest);
  return id.empty() ? absl::StrCat("step-", checkpoint.step) : id;
}

// The rest of the line that begins with a member of the result; empty: it has no such member. A
// result has one member on each line (ResultJson).
absl::string_view Member(absl::string_view result, absl::string_view name) {
  const std::string head = absl::StrCat("\n  \"", name, "\": ");
  const size_t at = result.find(head);
  if (at == absl::string_view::npos) return "";
  absl::string_view line = result.substr(at + head.size());
  return line.substr(0, line.find('\n'));
}

// Adds the names of a list in JSON, on one line.
void AddNames(absl::string_view list, std::vector<std::string>* names) {
  const std::vector<absl::string_view> parts = absl::StrSplit(list, '"');
  // Parts at odd places are names; the others are the commas between them.
  for (size_t i = 1; i < parts.size(); i += 2) names->emplace_back(parts[i]);
}

std::optional<FinishedRun> ReadFinished(const std::string& path, Env* env) {
  if (!IsOwnFile(env, path, FileKind::kResult)) return std::nullopt;
  const auto result = env->ReadFile(path);
  if (!result.ok()) return std::nullopt;
  FinishedRun run;
  const absl::string_view handed_on = Member(*result, "finished_checkpoints");
  AddNames(handed_on, &run.checkpoints);
  // A run whose model a later one was about to replace has finished, too.
  const absl::string_view status = Member(*result, "status");
  if (status != "\"done\"," && status != "\"replaced\",") {
    run.lists = true;
    return handed_on.empty() ? std::nullopt : std::make_optional(run);
  }
  const absl::string_view names = Member(*result, "kept_checkpoints");
  run.lists = !names.empty();
  AddNames(names, &run.checkpoints);
  absl::string_view step = Member(*result, "checkpoints");
  constexpr absl::string_view kStep = "\"step\": ";
  if (const size_t at = step.find(kStep); at != absl::string_view::npos) {
    step = step.substr(at + kStep.size());
    (void)absl::SimpleAtoi(step.substr(0, step.find_first_not_of("0123456789")), &run.newest_step);
  }
  return run;
}

bool Lists(const FinishedRun& run, const CheckpointInfo& checkpoint, const CheckpointInfo& newest) {
  // When the newest one is the run's own, nobody has made one since, so the older ones were there
  // at its end, too.
  if (!run.lists) return run.newest_step == newest.step;
  return std::count(run.checkpoints.begin(), run.checkpoints.end(), NameOf(checkpoint)) > 0;
}

// Whether the checkpoint that `initial` stands for is one of ROOT.
bool IsUnder(const std::string& root, const std::string& initial, Env* env) {
  if (initial.empty()) return false;
  const auto found = FindCheckpoint(initial, /*verify=*/false, env, nullptr);
  const auto normal = [](const std::filesystem::path& path) {
    const auto shortest = path.lexically_normal();
    return shortest.has_filename() ? shortest : shortest.parent_path();
  };
  return found.ok() && normal(std::filesystem::path(found->dir)).parent_path() == normal(root);
}

}  // namespace

std::vector<std::string> NamesOfCheckpoints(const std::string& root, Env* env) {
  std::vector<std::string> names;
  for (const CheckpointInfo& one : ListCheckpoints(root, env, /*damaged=*/nullptr))
    names.push_back(NameOf(one));
  return names;
}

std::vector<std::string> FinishedCheckpoints(const std::string& path, Env* env) {
  const std::optional<FinishedRun> run = ReadFinished(path, env);
  return run ? run->checkpoints : std::vector<std::string>();
}

std::optional<CheckpointInfo> FindUnfinished(const std::string& root, const std::string& output_dir,
                                             Env* env) {
  std::vector<CheckpointInfo> checkpoints = ListCheckpoints(root, env, /*damaged=*/nullptr);
  if (checkpoints.empty()) return std::nullopt;
  std::vector<std::string> folders = {output_dir, root.substr(0, root.rfind('/'))};
  // Jobs with output folders of their own may share a folder of checkpoints.
  for (const CheckpointInfo& one : checkpoints) {
    if (const auto job = ReadModelJob(one.dir, env); job.ok()) folders.push_back(job->output_dir());
  }
  std::sort(folders.begin(), folders.end());
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  std::vector<FinishedRun> finished;
  for (const std::string& folder : folders) {
    // JobFolder keeps the result of the model's run under the second name while a later run has
    // made no model, and under the third when the disk was full.
    for (const char* name : {"/result.json", "/model_result.json", "/replaced_result.json"}) {
      if (auto run = ReadFinished(folder + name, env)) finished.push_back(*std::move(run));
    }
  }
  for (CheckpointInfo& one : checkpoints) {
    const auto lists = [&](const FinishedRun& run) { return Lists(run, one, checkpoints.front()); };
    if (std::none_of(finished.begin(), finished.end(), lists)) return std::move(one);
  }
  return std::nullopt;
}

absl::Status CheckNoUnfinishedRun(const std::string& root, const JobConfig& job, Env* env) {
  if (root.empty()) return absl::OkStatus();
  const std::optional<CheckpointInfo> unfinished = FindUnfinished(root, job.output_dir(), env);
  if (!unfinished || IsUnder(root, job.initial_checkpoint(), env)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(root, " holds checkpoints of a run that has not finished (", unfinished->dir,
                   "); continue it with --resume, start a job from it with initial_checkpoint, or "
                   "give --overwrite to start from the beginning, which removes them when the new "
                   "run makes its first checkpoint"));
}

}  // namespace sluice
