#include "common/config/resume_rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "google/protobuf/util/message_differencer.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::util::MessageDifferencer;

constexpr size_t kLongest = 400;  // characters of a difference in a message

struct FreeFields {
  const Descriptor* type;
  std::vector<const char*> names;
};

std::vector<FreeFields> AllFreeFields() {
  return {
      {JobConfig::descriptor(),
       {"version", "name", "worker_num", "output_dir", "trace_file", "overwrite", "single_writer",
        "eval", "checkpoint", "initial_checkpoint", "recovery", "export"}},
      // The ranks report the files that they see, which says more than the patterns.
      {DataConfig::descriptor(),
       {"train_files", "eval_files", "max_bad_lines", "cache", "cache_dir", "cache_max_bytes"}},
      {TrainConfig::descriptor(),
       {"epochs", "log_every", "prefetch_batches", "reader_threads", "threads", "step_timeout_s",
        "pin_threads", "device_memory_fraction", "early_stop"}},
      // Who keeps the dense tables changes values by roundings, as the number of workers does.
      {SyncConfigs::descriptor(),
       {"on_worker_loss", "dense", "engine", "fuse_mb", "fuse_layers", "comm_num"}},
      // A checkpoint is read by any number of shards, and by workers that keep the table.
      {TableConfig::descriptor(), {"num_shards", "max_rows", "max_gib", "evict", "update_at"}},
  };
}

// "modified: train.batch_size: 512 -> 256" becomes "train.batch_size is 256, but was 512 ...".
std::string Describe(const std::string& difference) {
  const std::vector<std::string> parts = absl::StrSplit(difference, absl::MaxSplits(": ", 2));
  if (parts.size() < 3) return difference;
  if (parts[0] == "added") {
    return absl::StrCat(parts[1], " is ", parts[2], ", but was not set in the checkpoint's job");
  }
  if (parts[0] == "deleted") {
    return absl::StrCat(parts[1], " is not set, but was ", parts[2], " in the checkpoint's job");
  }
  const std::vector<std::string> values = absl::StrSplit(parts[2], absl::MaxSplits(" -> ", 1));
  if (values.size() < 2) return difference;
  return absl::StrCat(parts[1], " is ", values[1], ", but was ", values[0],
                      " in the checkpoint's job");
}

bool HasOnlyFreeFields(TableConfig table) {
  table.clear_name();
  table.clear_num_shards();
  table.clear_max_rows();
  table.clear_max_gib();
  table.clear_evict();
  table.clear_update_at();
  return table.ByteSizeLong() == 0;
}

// Whether the values are those that the job's own program offers to each launch.
bool StartsFromItsProgram(const JobConfig& job) {
  return !job.initial_model().empty() &&
         job.initial_model() == job.model().program().initial_values();
}

// CheckResume compares gradient_merge_steps itself, since absent means 1. The differencer would
// compare a message of free fields with an absent one, also where `other` says nothing of a table.
JobConfig Comparable(JobConfig job, const JobConfig& other) {
  job.mutable_strategy()->mutable_sync_configs()->clear_gradient_merge_steps();
  // Each launch of a program offers its initial values in a folder of its own.
  if (StartsFromItsProgram(job) && StartsFromItsProgram(other)) job.clear_initial_model();
  if (job.model().has_program()) job.mutable_model()->mutable_program()->clear_initial_values();
  // A half life of evict, which is free, brings the day of the data with it.
  if (other.data().day().empty()) job.mutable_data()->clear_day();
  const auto says_nothing = [&](const TableConfig& table) {
    return HasOnlyFreeFields(table) &&
           std::none_of(other.tables().begin(), other.tables().end(),
                        [&](const TableConfig& t) { return t.name() == table.name(); });
  };
  auto* const tables = job.mutable_tables();
  tables->erase(std::remove_if(tables->begin(), tables->end(), says_nothing), tables->end());
  return job;
}

absl::Status CannotResume(const std::string& difference) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot resume: ", difference, "; give the value of the checkpoint's job"));
}

}  // namespace

absl::Status CheckResume(const JobConfig& saved, const JobConfig& job) {
  // With another number of batches a step, steps would no longer end at the same examples.
  if (MergedBatches(saved) != MergedBatches(job)) {
    return CannotResume(absl::StrCat("strategy.sync_configs.gradient_merge_steps is ",
                                     MergedBatches(job), ", but was ", MergedBatches(saved),
                                     " in the checkpoint's job"));
  }
  const Mode earlier = ModeOf(saved.strategy()), now = ModeOf(job.strategy());
  if (earlier != now) {
    return CannotResume(absl::StrCat("the job is in ", ModeName(now),
                                     " mode, but the checkpoint's job was in ", ModeName(earlier),
                                     " mode (strategy.a_sync, strategy.a_sync_configs.k_steps)"));
  }
  MessageDifferencer differencer;
  for (const FreeFields& free : AllFreeFields()) {
    for (const char* name : free.names) {
      differencer.IgnoreField(free.type->FindFieldByName(name));
    }
  }
  // Their order does not matter.
  differencer.TreatAsMap(JobConfig::descriptor()->FindFieldByName("tables"),
                         TableConfig::descriptor()->FindFieldByName("name"));
  std::string differences;
  // The report follows the order of the fields. Only the first difference is told: it is often the
  // cause of the others.
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(Comparable(saved, job), Comparable(job, saved))) return absl::OkStatus();
  const std::vector<std::string> lines = absl::StrSplit(differences, '\n', absl::SkipEmpty());
  std::string first = differences;
  for (const std::string& line : lines) {
    // The report also lists what is equal or free.
    if (absl::StartsWith(line, "ignored: ") || absl::StartsWith(line, "moved: ")) continue;
    first = Describe(line.size() <= kLongest ? line : line.substr(0, kLongest) + "...");
    break;
  }
  return CannotResume(first);
}

std::string OrStartAnew(const std::string& dir) {
  return absl::StrCat("; or start a new job with what the checkpoint holds: without --resume, in ",
                      "another --output_dir, with --set initial_checkpoint=", dir,
                      ", or initial_model for other optimizers (--overwrite starts from the "
                      "beginning, and the checkpoint is lost)");
}

absl::Status CheckSubmission(const SubmitJobRequest& request) {
  if (!request.resume()) {
    if (!request.allow_older()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--allow_older has no effect without --resume; add --resume or remove it");
  }
  const JobConfig& job = request.config();
  if (job.evaluate_only()) {
    return absl::InvalidArgumentError(
        "--resume contradicts evaluate_only, which trains nothing that could be resumed; remove "
        "one of them");
  }
  if (!CanCheckpoint(job)) {
    return absl::InvalidArgumentError(
        "--resume contradicts checkpoint.keep 0, with which a job makes no checkpoints; give keep "
        "1 "
        "or more, or remove --resume");
  }
  if (CheckpointRoot(job).empty()) {
    return absl::InvalidArgumentError(
        "--resume needs the folder of the earlier run, but neither output_dir nor checkpoint.dir "
        "is set; give --output_dir");
  }
  return absl::OkStatus();
}

}  // namespace sluice
