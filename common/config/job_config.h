// Turns files, environment variables and flags into one effective, validated configuration.
//
// Every error names the file:line:column (if it comes from a file), the field, the value and the
// fix.
//
// Thread safety: Free functions. Those that read the environment need it to stay unchanged
// meanwhile.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/model_rules.h"
#include "proto/config.pb.h"

namespace sluice {

// True for a job in whose training checkpoints can be made.
bool CanCheckpoint(const JobConfig& job);
// The folder of the job's checkpoints: checkpoint.dir, or `checkpoints` in output_dir; "" when both
// are empty.
std::string CheckpointRoot(const JobConfig& job);

// A field set by a flag or variable, such as ("train.batch_size", "512"), and its origin for
// messages.
struct ConfigOverride {
  std::string path;
  std::string value;
  std::string origin;  // "--batch_size", "SLUICE_BATCH_SIZE", "--set"
};

// A field with a short name: it can be set by the flag --name and the variable SLUICE_NAME (in
// upper case).
struct ShortOption {
  const char* name;
  const char* path;
};
absl::Span<const ShortOption> ShortOptions();
// The variables of ShortOptions() that are set and not empty.
std::vector<ConfigOverride> OverridesFromEnvironment();

// Makes the paths of the job absolute. Those of inputs are relative to `base_dir`, or to the
// current folder if it is empty; those of outputs to the current folder.
void ResolvePaths(const std::string& base_dir, JobConfig* job);

// Parses a textproto; unknown fields are errors with file:line:column.
absl::StatusOr<JobConfig> ReadJobConfig(const std::string& file);
absl::StatusOr<ClusterConfig> ReadClusterConfig(const std::string& file);

// Sets message.path = value. Strings need no quotes; enums are named; a message value is textproto
// in braces; a repeated field is replaced ("a,b" is two values, "[...]" a textproto list);
// "tables[0].num_shards" reaches an element. On error the message is unchanged; INVALID_ARGUMENT
// names the path's wrong part and what exists there.
absl::Status ApplyOverride(const ConfigOverride& override, google::protobuf::Message* message);
// Applies the overrides in order. `strategy.a_sync=false` also sets k_steps to 0, unless the same
// layer (flags or variables) or a higher one overrides k_steps too. Values that one layer gives for
// both are kept, so that the validation sees a contradiction.
absl::Status ApplyOverrides(absl::Span<const ConfigOverride> overrides, JobConfig* job);

// Makes a job effective, in this order:
// - expands ranges of features and fills in every default;
// - resolves data paths against `base_dir` ("" is the current folder), and output_dir,
//   checkpoint.dir and trace_file against the current folder;
// - validates all that can be checked without data: ranges, contradictions, names. Applying it
//   again changes nothing. Four defaults are left to others: output_dir and checkpoint.dir to the
//   scheduler, which knows the job_id; train.threads to the worker, which knows its host's cores;
//   and data.task_bytes to the scheduler, which learns the size of the data. The tables are not
//   derived here. `rules` come from the job's model. INVALID_ARGUMENT lists all problems, one a
//   line.
absl::StatusOr<JobConfig> EffectiveJobConfig(JobConfig job, const std::string& base_dir,
                                             const ModelRules& rules);

// Finds the columns of `data`, in the order of a line. Paths and defaults of `data` are filled in.
using FindColumns = std::function<absl::StatusOr<std::vector<std::string>>(const DataConfig& data)>;

// Reads the file, applies the overrides, names a nameless job after its file, expands its features
// (feature_patterns.h) and makes it effective; then calls `check`, whose errors name their field
// with AtField (config_problem.h). Problems of values from the file say file:line. `columns` is
// only called when a feature has a wildcard; without `columns` wildcards are refused.
absl::StatusOr<JobConfig> LoadJobConfig(
    const std::string& file, absl::Span<const ConfigOverride> overrides, const ModelRules& rules,
    const std::function<absl::Status(const JobConfig&)>& check = nullptr,
    const FindColumns& columns = nullptr);

absl::Status ValidateClusterConfig(const ClusterConfig& cluster);
ClusterConfig WithDefaults(ClusterConfig cluster);

std::string ToTextproto(const google::protobuf::Message& message);

// Writes a whole number in plain digits: "1000000" for "1e6", "2" for "2.0"; nullopt unless `text`
// is a whole number of at most 2^53.
std::optional<std::string> DigitsOf(absl::string_view text);

}  // namespace sluice
