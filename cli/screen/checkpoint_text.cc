#include "cli/screen/checkpoint_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/screen/format.h"
#include "cli/screen/job_summary.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"

namespace sluice::cli {
namespace {

// The checkpoints of a folder, newest first, and the errors of those whose manifest is damaged.
struct Found {
  std::vector<CheckpointInfo> checkpoints;
  std::vector<absl::Status> damaged;
  std::vector<std::string> unfinished;  // their folders
};

absl::Status NoCheckpoint(const std::string& dir) {
  return absl::NotFoundError(absl::StrCat(
      "there is no checkpoint in ", dir,
      "; give a job's output_dir, its folder of checkpoints, or one of the folders step-N there"));
}

std::string WithoutSlashes(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

bool HasShards(const std::string& dir, Env* env) {
  const auto names = env->List(dir).value_or(std::vector<std::string>());
  return std::any_of(names.begin(), names.end(), IsShardFile);
}

absl::StatusOr<Found> FindCheckpoints(const std::string& given, Env* env) {
  const std::string dir = WithoutSlashes(given);
  Found found;
  if (env->Exists(dir + "/MANIFEST")) {
    const auto manifest = ReadManifest(dir, env);
    // The folder is a checkpoint all the same: its damage is the answer, not that there is none.
    if (!manifest.ok()) {
      found.damaged.push_back(manifest.status());
      return found;
    }
    if (!manifest->has_checkpoint()) {
      return absl::NotFoundError(
          absl::StrCat(dir, " is a saved model, not a checkpoint; give a folder step-N"));
    }
    found.checkpoints.push_back({dir, manifest->global_step(), *manifest});
    return found;
  }
  // A user may give the output_dir of a job or the folder of its checkpoints.
  for (const std::string& root : {dir, dir + "/checkpoints"}) {
    found.checkpoints = ListCheckpoints(root, env, &found.damaged);
    // A folder that cannot be read, such as on a store that does not answer, says nothing of them.
    for (const absl::Status& why : found.damaged)
      if (found.checkpoints.empty() && !absl::IsDataLoss(why)) return why;
    found.unfinished = ListUnfinishedCheckpoints(root, env);
    if (!found.checkpoints.empty() || !found.damaged.empty()) return found;
    if (found.unfinished.empty()) continue;
    return absl::NotFoundError(
        absl::StrCat("there is no complete checkpoint in ", root,
                     ", only unfinished ones: ", absl::StrJoin(found.unfinished, ", ")));
  }
  // The manifest is written last. Shards without one are a checkpoint that was not completed.
  if (HasShards(dir, env)) {
    found.damaged.push_back(absl::DataLossError(absl::StrCat(
        dir, "/MANIFEST is missing: the checkpoint was not completed, or the file was lost")));
    return found;
  }
  return NoCheckpoint(dir);
}

uint64_t BytesOf(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const SavedFile& file : manifest.files()) bytes += file.bytes();
  return bytes;
}

std::string AgeOf(const CheckpointInfo& checkpoint, absl::Time now) {
  const double unix_time = checkpoint.manifest.checkpoint().unix_time();
  if (unix_time <= 0) return "?";
  // The clock of the host that made it may be ahead of this one.
  return ShortDuration(std::max(0.0, absl::ToDoubleSeconds(now - absl::UnixEpoch()) - unix_time));
}

uint64_t ExamplesOfEpoch(const CheckpointState& state) {
  uint64_t examples = 0;
  for (const WorkerState& worker : state.workers()) examples += worker.train().examples();
  return examples;
}

std::string TableLine(const CheckpointInfo& checkpoint, const TableConfig& table, Env* env) {
  uint64_t bytes = 0, files = 0;
  for (const SavedFile& file : checkpoint.manifest.files()) {
    uint32_t shard = 0;
    // The manifest lists the files of all tables together; their names say whose they are.
    if (!ParseShardFileName(file.name(), table.name(), &shard)) continue;
    bytes += file.bytes();
    ++files;
  }
  const bool sparse = table.kind() == TableConfig::SPARSE;
  const auto count = CountRecords(checkpoint.dir, checkpoint.manifest, table.name(), env);
  const std::string records =
      count.ok()
          ? absl::StrCat(WithCommas(*count), sparse ? " row" : " element", *count == 1 ? "" : "s")
          : absl::StrCat("damaged: ", count.status().message());
  return absl::StrFormat("  table %-24s %-6s %4d %-6s %10s  %s\n", table.name(),
                         sparse ? "sparse" : "dense", files, files == 1 ? "file" : "files",
                         ByteCount(bytes), records);
}

}  // namespace

std::string CheckpointAge(const CheckpointStatus& status) {
  std::string text;
  if (status.step() > 0) {
    text = absl::StrCat("checkpoint of step ", WithCommas(status.step()), " ",
                        ShortDuration(status.age_s()), " ago");
    // Until there is a checkpoint, the age counts from when the job began to run.
  } else if (status.failed() > 0 && status.age_s() > 0) {
    text = absl::StrCat("no checkpoint in ", ShortDuration(status.age_s()));
  }
  if (status.failed() > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", Counted(status.failed(), "checkpoint"),
                    " failed");
  }
  return text;
}

std::string DescribeCheckpoints(const CheckpointStatus& status) {
  std::string text = CheckpointAge(status);
  const auto add = [&text](const std::string& more) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", more);
  };
  if (status.step() > 0) add(absl::StrCat(ByteCount(status.bytes()), " in ", status.dir()));
  if (status.made() > 0)
    add(absl::StrCat(Counted(status.made(), "checkpoint"), " made, the last in ",
                     ShortDuration(status.seconds())));
  if (!status.doing().empty()) add(status.doing());
  if (!status.last_error().empty()) add(absl::StrCat("last error: ", status.last_error()));
  return text;
}

std::string DescribeExports(const ExportStatus& status) {
  if (status.ByteSizeLong() == 0) return "";
  std::string text = "exports: none yet";
  if (status.made() > 0) {
    text = absl::StrCat(status.base() ? "exported a base" : "exported a delta", " of step ",
                        WithCommas(status.step()), " ", ShortDuration(status.age_s()), " ago, ",
                        Counted(status.rows(), "row"), ", ", ByteCount(status.bytes()), " in ",
                        status.dir(), ", ", Counted(status.made(), "export"), " made (",
                        Counted(status.bases(), "base"), "), the last in ",
                        ShortDuration(status.seconds()));
  }
  if (!status.doing().empty()) absl::StrAppend(&text, ", ", status.doing());
  if (!status.new_base().empty()) {
    absl::StrAppend(&text,
                    status.base() || status.made() == 0 ? "; base because of: "
                                                        : "; last new base because of: ",
                    status.new_base());
  }
  if (!status.last_error().empty()) absl::StrAppend(&text, "; last error: ", status.last_error());
  return text;
}

std::string DescribeRecovery(const Recovery& recovery) {
  std::vector<std::string> parts;
  const auto add = [&parts](uint64_t count, const std::string& noun, const std::string& what) {
    if (count > 0) parts.push_back(Counted(count, noun) + what);
  };
  add(recovery.worker_losses(), "worker", " lost");
  add(recovery.pserver_losses(), "pserver", " lost");
  add(recovery.scheduler_restarts(), "scheduler restart", "");
  add(recovery.rollbacks(), "rollback", "");
  add(recovery.shrinks(), "rank", " given up");
  add(recovery.scalings(), "change", " of scale");
  add(recovery.steps_rolled_back(), "step", " rolled back");
  add(recovery.examples_replayed(), "example", " trained again");
  add(recovery.updates_lost(), "update", " of single shards lost");
  return absl::StrJoin(parts, ", ");
}

absl::StatusOr<std::string> CheckpointList(const std::string& dir, Env* env, absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const Found found, FindCheckpoints(dir, env));
  std::string text = absl::StrFormat("%12s  %10s  %10s  %s\n", "step", "age", "size", "state");
  for (const CheckpointInfo& one : found.checkpoints) {
    // Damage is an entry of the table, not an error: the user looks for a checkpoint that is left.
    const absl::Status checked = CheckCheckpoint(one, env);
    absl::StrAppendFormat(&text, "%12s  %10s  %10s  %s\n", WithCommas(one.step), AgeOf(one, now),
                          ByteCount(BytesOf(one.manifest)),
                          checked.ok() ? absl::StrCat("complete: ", one.dir)
                                       : absl::StrCat("damaged: ", checked.message()));
  }
  for (const absl::Status& damaged : found.damaged)
    absl::StrAppendFormat(&text, "%12s  %10s  %10s  damaged: %s\n", "?", "?", "?",
                          damaged.message());
  for (const std::string& dir : found.unfinished)
    absl::StrAppendFormat(&text, "%12s  %10s  %10s  unfinished, or half removed: %s\n", "-", "-",
                          "-", dir);
  return text;
}

absl::Status VerifyCheckpoints(const std::string& dir, Env* env,
                               const std::function<void(const std::string& line)>& say) {
  SLUICE_ASSIGN_OR_RETURN(const Found found, FindCheckpoints(dir, env));
  // Goes on after damage, so that one run names every damaged file.
  absl::Status first;
  for (const absl::Status& damaged : found.damaged) {
    say(absl::StrCat("damaged: ", damaged.message()));
    first.Update(damaged);
  }
  for (const CheckpointInfo& one : found.checkpoints) {
    std::vector<std::string> not_finite;
    const absl::Status intact = VerifyCheckpoint(
        one.dir, env,
        [&](const std::string& name, const absl::Status& why) {
          say(absl::StrCat("damaged: ", one.dir, "/", name, ": ", why.message()));
        },
        &not_finite);
    first.Update(intact);
    for (const std::string& table : not_finite) {
      const std::string line = absl::StrCat(one.dir, intact.ok() ? ": intact, but " : ": ", table,
                                            ": it cannot be resumed from");
      say(line);
      first.Update(absl::FailedPreconditionError(line));
    }
    say(absl::StrCat(one.dir, ": ", intact.ok() ? "intact" : "damaged", ", step ",
                     WithCommas(one.step), ", ",
                     Counted(static_cast<uint64_t>(one.manifest.files_size()), "file"), ", ",
                     ByteCount(BytesOf(one.manifest))));
  }
  return first;
}

absl::StatusOr<std::string> DescribeCheckpoint(const std::string& dir, Env* env, absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const Found found, FindCheckpoints(dir, env));
  // Find returns an error when there is neither, so something is damaged here.
  if (found.checkpoints.empty()) return found.damaged.front();
  const CheckpointInfo& one = found.checkpoints.front();
  const CheckpointState& state = one.manifest.checkpoint();
  SLUICE_ASSIGN_OR_RETURN(const JobConfig job, ReadModelJob(one.dir, env));
  std::string text = absl::StrCat(
      one.dir, "\n  job ", one.manifest.job_id(), " (", job.name(), "), mode ", state.mode(), ", ",
      Counted(state.worker_num(), "worker"), " x batch ", BatchText(job), ", seed ",
      job.train().seed(), "\n  global step ", WithCommas(state.global_step()), ", epoch ",
      // Epochs count from 0 in the state and from 1 for people.
      state.epoch() + 1, " of ", job.train().epochs());
  if (state.steps_per_epoch() > 0) {
    absl::StrAppend(&text, ", ", WithCommas(state.steps_done()), " of ",
                    WithCommas(state.steps_per_epoch()), " steps and ",
                    WithCommas(ExamplesOfEpoch(state)), " examples of the epoch");
  }
  if (state.task_bytes() > 0) {
    absl::StrAppend(&text, ", ", WithCommas(ExamplesOfEpoch(state)), " examples of the epoch, ",
                    Counted(static_cast<uint64_t>(state.open_tasks_size()), "data task"), " of ",
                    ByteCount(state.task_bytes()), " not finished");
  }
  absl::StrAppend(&text, "\n  made ", AgeOf(one, now), " ago, ", ByteCount(BytesOf(one.manifest)),
                  "\n  examples of complete epochs: ", WithCommas(state.result().examples()), "\n");
  if (!state.result().resumed_from().empty())
    absl::StrAppend(&text, "  its job was resumed from ", state.result().resumed_from(), "\n");
  for (const TableConfig& table : one.manifest.tables())
    absl::StrAppend(&text, TableLine(one, table, env));
  for (const WorkerState& worker : state.workers()) {
    if (!worker.has_file()) continue;
    const bool geo = state.mode() == ModeName(Mode::kGeo);
    absl::StrAppendFormat(&text, "  %s in %s, %s\n",
                          geo ? "local optimizer state" : "state of the program's source",
                          worker.file().name(), ByteCount(worker.file().bytes()));
  }
  return text;
}

}  // namespace sluice::cli
