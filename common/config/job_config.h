// From files, environment and flags to one effective, validated configuration.
//
// Every error says file:line:column (when it comes from a file), the field, the value and the fix.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/model_rules.h"
#include "proto/config.pb.h"

namespace sluice {

enum class Mode { kSync, kAsync, kGeo };
const char* ModeName(Mode mode);  // "sync", "async", "geo"
Mode ModeOf(const StrategyConfig& strategy);
inline uint32_t KSteps(const StrategyConfig& s) { return s.a_sync_configs().k_steps(); }

// A field set by a flag or variable: ("train.batch_size", "512"), and where it came from for
// messages.
struct ConfigOverride {
  std::string path;
  std::string value;
  std::string origin;  // "--batch_size", "SLUICE_BATCH_SIZE", "--set"
};

// Fields that have a short name: flag --name and variable SLUICE_NAME (upper case).
struct ShortOption {
  const char* name;
  const char* path;
};
absl::Span<const ShortOption> ShortOptions();
// The variables of ShortOptions() that are set and not empty.
std::vector<ConfigOverride> OverridesFromEnvironment();

// Parses a textproto; unknown fields are errors with file:line:column.
absl::StatusOr<JobConfig> ReadJobConfig(const std::string& file);
absl::StatusOr<ClusterConfig> ReadClusterConfig(const std::string& file);

// Sets message.path = value. Strings need no quotes; enums are named; a message value is textproto
// in braces; a repeated field is replaced ("a,b" is two values, "[...]" a textproto list);
// "tables[0].num_shards" reaches an element. On error the message is unchanged; INVALID_ARGUMENT
// names the path's wrong part and what exists there.
absl::Status ApplyOverride(const ConfigOverride& override, google::protobuf::Message* message);
// In order. `strategy.a_sync=false` also sets k_steps to 0, unless k_steps is itself overridden by
// a flag, or by a variable when a_sync was: what a layer says about both at once is kept, so that
// contradictions are seen.
absl::Status ApplyOverrides(absl::Span<const ConfigOverride> overrides, JobConfig* job);

// Expands ranges of features, fills every default, resolves data paths against `base_dir` ("" is
// the current folder), output_dir and trace_file against the current folder, then validates
// everything that can be known without data: ranges, contradictions, names. Applying it again
// changes nothing. Left to those who know: output_dir (the scheduler has the job_id), train.threads
// (cores of the host), data.task_bytes (size of the data). The tables are not derived here.
// `rules` are those of the job's model. INVALID_ARGUMENT lists all problems, a line each.
absl::StatusOr<JobConfig> EffectiveJobConfig(JobConfig job, const std::string& base_dir,
                                             const ModelRules& rules);

// The columns of data whose paths and defaults are filled in, in the order of a line.
using FindColumns = std::function<absl::StatusOr<std::vector<std::string>>(const DataConfig& data)>;

// Read, override, name (default: the file's), expand features (feature_patterns.h), make effective,
// then ask `check` too, whose errors name their field with AtField (field_error.h). Problems of
// values from the file say file:line. `columns` is asked only when a feature has a wildcard, which
// is refused without it.
absl::StatusOr<JobConfig> LoadJobConfig(
    const std::string& file, absl::Span<const ConfigOverride> overrides, const ModelRules& rules,
    const std::function<absl::Status(const JobConfig&)>& check = nullptr,
    const FindColumns& columns = nullptr);

absl::Status ValidateClusterConfig(const ClusterConfig& cluster);
ClusterConfig WithDefaults(ClusterConfig cluster);

std::string ToTextproto(const google::protobuf::Message& message);

}  // namespace sluice
