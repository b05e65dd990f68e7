#include "cli/jobs/job_submission.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/bounded_parse.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/config/own_data.h"
#include "common/config/resume_rules.h"
#include "common/daemon/control_plane.h"
#include "common/places/places_env.h"
#include "common/transport/retry.h"
#include "model/built_in_models.h"
#include "model/data/data_source.h"
#include "model/data/file_columns.h"
#include "model/features/feature_compiler.h"
#include "model/model_spec.h"

namespace sluice::cli {
namespace {

// Checks what common/config cannot: that the configuration makes a model, its tables and a
// reader.
absl::Status CheckModelAndData(const JobConfig& job) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(job, BuiltInSpecs()));
  SLUICE_RETURN_IF_ERROR(CheckShards(job, model->tables(), /*num_pservers=*/1));
  if (ProgramGivesData(job)) return absl::OkStatus();
  return DataSource::Create(job.data(), model->schema(), Env::Real()).status();
}

// Refuses a num_shards that tables whose rows go cannot have. If the job starts from a checkpoint,
// that one's number counts (CheckInitialCheckpoint, CheckCanResume).
absl::Status CheckNewShards(const SubmitJobRequest& request) {
  const JobConfig& job = request.config();
  if (request.resume() || !job.initial_checkpoint().empty()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(job, BuiltInSpecs()));
  std::vector<TableConfig> tables = model->tables();
  return FixShards(/*checkpoint=*/nullptr, &tables);
}

// Refuses two flags that give one field different values. A flag that is given twice is no
// contradiction: the last one counts, so that a script can add to a command.
absl::Status CheckAgree(const std::vector<ConfigOverride>& of_flags) {
  for (auto first = of_flags.begin(); first != of_flags.end(); ++first) {
    const auto other = std::find_if(first, of_flags.end(), [&](const ConfigOverride& one) {
      return one.path == first->path && one.origin != first->origin && one.value != first->value;
    });
    if (other == of_flags.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(first->origin, "=", first->value, " and ", other->origin, " ", other->path,
                     "=", other->value, " contradict each other; give one of them"));
  }
  return absl::OkStatus();
}

// Everything that overrides the job's file.
absl::StatusOr<std::vector<ConfigOverride>> OverridesOf(
    const ParsedCommand& command, const std::vector<ConfigOverride>& follows) {
  // Later overrides win: first the variables, then `follows`, then the flags.
  std::vector<ConfigOverride> overrides = OverridesFromEnvironment();
  overrides.insert(overrides.end(), follows.begin(), follows.end());
  std::vector<ConfigOverride> of_flags, sets;
  for (const ShortOption& option : ShortOptions()) {
    if (!command.Given(option.name)) continue;
    of_flags.push_back({option.path, command.Text(option.name), absl::StrCat("--", option.name)});
  }
  for (const std::string& text : command.All("set")) {
    const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[0].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--set ", text,
          " names no field or no value; give path.to.field=value, e.g. train.batch_size=512"));
    }
    sets.push_back({parts[0], parts[1], "--set"});
  }
  if (command.Given("overwrite")) {
    of_flags.push_back(
        {"overwrite", command.Switch("overwrite") ? "true" : "false", "--overwrite"});
  }
  of_flags.insert(of_flags.end(), sets.begin(), sets.end());
  SLUICE_RETURN_IF_ERROR(CheckAgree(of_flags));
  overrides.insert(overrides.end(), of_flags.begin(), of_flags.end());
  return overrides;
}

absl::StatusOr<JobConfig> LoadJob(const std::string& file,
                                  const std::vector<ConfigOverride>& overrides) {
  SLUICE_ASSIGN_OR_RETURN(JobConfig job,
                          LoadJobConfig(file, overrides, BuiltInSpecs(), &CheckModelAndData,
                                        ColumnsReader(AllPlaces())));
  SeparateUnknownValues(&job);
  return job;
}

// Overrides again, with absolute paths, the inputs that `overrides` set to paths relative to the
// current folder. The paths in `file` itself are absolute.
absl::Status ResolveInputs(const std::string& file, std::vector<ConfigOverride>* overrides) {
  SLUICE_ASSIGN_OR_RETURN(JobConfig given, ReadJobConfig(file));
  SLUICE_RETURN_IF_ERROR(ApplyOverrides(*overrides, &given));
  JobConfig resolved = given;
  ResolvePaths("", &resolved);
  const auto add = [overrides](const char* path, const std::string& before,
                               const std::string& after) {
    if (before != after) overrides->push_back({path, after, "--set"});
  };
  const auto add_files = [&add](const char* path, const auto& before, const auto& after) {
    const auto list = [](const auto& files) {
      return absl::StrCat("[",
                          absl::StrJoin(files, ", ",
                                        [](std::string* out, const std::string& one) {
                                          absl::StrAppend(out, "\"", absl::CEscape(one), "\"");
                                        }),
                          "]");
    };
    add(path, list(before), list(after));
  };
  add_files("data.train_files", given.data().train_files(), resolved.data().train_files());
  add_files("data.eval_files", given.data().eval_files(), resolved.data().eval_files());
  add("data.cache_dir", given.data().cache_dir(), resolved.data().cache_dir());
  add("initial_model", given.initial_model(), resolved.initial_model());
  add("initial_checkpoint", given.initial_checkpoint(), resolved.initial_checkpoint());
  return absl::OkStatus();
}

}  // namespace

std::vector<FlagSpec> JobFlags() {
  std::vector<FlagSpec> flags = {
      {"job", FlagKind::kText, "FILE", "", "the job, a JobConfig textproto (required)"}};
  for (const ShortOption& option : ShortOptions()) {
    if (std::string(option.name) == "trace") {
      flags.push_back(
          {"trace", FlagKind::kText, "FILE|URL", "",
           "write a timeline of all processes, for https://ui.perfetto.dev (SLUICE_TRACE)"});
      continue;
    }
    // All other options are texts here: LoadJobConfig parses them as it parses --set, with the
    // field in the message.
    const bool is_switch = std::string(option.name) == "a_sync";
    flags.push_back({option.name, is_switch ? FlagKind::kBool : FlagKind::kText,
                     is_switch ? "BOOL" : "VALUE", "",
                     absl::StrCat("overrides ", option.path, " of the file (SLUICE_",
                                  absl::AsciiStrToUpper(option.name), ")")});
  }
  flags.push_back({"set", FlagKind::kText, "PATH=VALUE", "",
                   "overrides any field, e.g. --set train.reader_threads=2", true});
  flags.push_back({"overwrite", FlagKind::kBool, "", "",
                   "replace files at --trace and in --output_dir that Sluice did not write, and "
                   "the checkpoints of a run that has not finished"});
  flags.push_back({"resume", FlagKind::kBool, "", "",
                   "continue from the newest checkpoint of --output_dir; without one, start from "
                   "the beginning"});
  flags.push_back({"allow_older", FlagKind::kBool, "", "",
                   "with --resume: if the newest checkpoint is damaged, take the newest intact "
                   "one"});
  flags.push_back({"dry_run", FlagKind::kBool, "", "",
                   "check the job and its data, print the effective config and exit"});
  flags.push_back(
      {"progress", FlagKind::kText, "auto|live|plain", "auto", "one live line, or plain lines"});
  return flags;
}

absl::StatusOr<JobConfig> JobFromFlags(const ParsedCommand& command,
                                       const std::vector<ConfigOverride>& follows) {
  if (command.Text("job").empty()) {
    return absl::InvalidArgumentError(
        "no job is given; give --job=FILE, e.g. --job=configs/adult_wide_deep.textproto");
  }
  if (absl::EndsWith(command.Text("job"), ".py")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--job=", command.Text("job"),
                     " is a Python program and no job file; did you mean sluice launch --program=",
                     command.Text("job"), "?"));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto overrides, OverridesOf(command, follows));
  return LoadJob(command.Text("job"), overrides);
}

absl::StatusOr<JobConfig> JobOfProgram(const std::string& file, const ParsedCommand& command,
                                       const std::vector<ConfigOverride>& follows) {
  SLUICE_ASSIGN_OR_RETURN(auto overrides, OverridesOf(command, follows));
  SLUICE_RETURN_IF_ERROR(ResolveInputs(file, &overrides));
  return LoadJob(file, overrides);
}

absl::Status CheckSubmissionSize(const SubmitJobRequest& request) {
  const std::string wire = request.SerializeAsString();
  const std::string advice =
      "; shorten the vocabularies or leave them out (values are hashed then), or declare fewer "
      "features";
  if (wire.size() > kMaxJobBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the job's configuration has ", wire.size(),
                                                   " bytes; a scheduler takes at most ",
                                                   kMaxJobBytes, advice));
  }
  const absl::Status parsed =
      EstimateParsedBytes(wire, request, MaxJobParsedBytes(wire.size())).status();
  if (!absl::IsResourceExhausted(parsed)) return parsed;
  return absl::InvalidArgumentError(
      absl::StrCat("the job's configuration takes more than ", MaxJobParsedBytes(wire.size()),
                   " bytes of memory, which is the most that a scheduler accepts", advice));
}

absl::StatusOr<SubmitJobRequest> SubmissionFromFlags(const ParsedCommand& command,
                                                     const JobConfig& job) {
  SubmitJobRequest request;
  request.set_resume(command.Switch("resume"));
  request.set_allow_older(command.Switch("allow_older"));
  *request.mutable_config() = job;
  SLUICE_RETURN_IF_ERROR(CheckSubmission(request));
  SLUICE_RETURN_IF_ERROR(CheckSubmissionSize(request));
  SLUICE_RETURN_IF_ERROR(CheckNewShards(request));
  return request;
}

absl::StatusOr<SubmitJobReply> SubmitJob(SchedulerClient* client, const SubmitJobRequest& request,
                                         absl::Duration patience,
                                         const std::function<absl::Status()>& check_cluster,
                                         Clock* clock) {
  // One id for all tries. The scheduler recognizes a repeated call, so the job starts once even
  // when an answer is lost.
  const std::string request_id = absl::StrCat(absl::Hex(RandomId(), absl::kZeroPad16));
  const absl::Time end = clock->Now() + patience;
  for (;;) {
    auto reply = client->SubmitJobAs(request_id, request);
    if (!GotNoAnswer(reply.status()) || clock->Now() >= end) return reply;
    // The caller may know that the scheduler has died for good, and how. That beats waiting in
    // vain.
    if (check_cluster) SLUICE_RETURN_IF_ERROR(check_cluster());
    clock->Sleep(absl::Milliseconds(100));
  }
}

}  // namespace sluice::cli
