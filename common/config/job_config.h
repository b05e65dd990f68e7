// From files, environment and flags to one effective, validated configuration.
//
// Every error says file:line:column (when it comes from a file), the field, the value and the fix.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"

namespace sluice {

enum class Mode { kSync, kAsync, kGeo };
const char* ModeName(Mode mode);  // "sync", "async", "geo"
Mode ModeOf(const StrategyConfig& strategy);
inline uint32_t KSteps(const StrategyConfig& s) { return s.a_sync_configs().k_steps(); }

// A field set by a flag or variable: ("train.batch_size", "512"), and where it came from for messages.
struct ConfigOverride {
  std::string path;
  std::string value;
  std::string origin;  // "--batch_size", "SLUICE_BATCH_SIZE", "--set"
};

// Parses a textproto; unknown fields are errors with file:line:column.
absl::StatusOr<JobConfig> ReadJobConfig(const std::string& file);
absl::StatusOr<ClusterConfig> ReadClusterConfig(const std::string& file);

// Sets message.path = value; strings need no quotes; a message value is textproto in braces; a repeated
// field is replaced ("a,b" is two values). INVALID_ARGUMENT names the path's wrong part and what exists there.
absl::Status ApplyOverride(const ConfigOverride& override, google::protobuf::Message* message);
// In order. `strategy.a_sync=false` without a k_steps among the overrides also sets the file's k_steps to 0.
absl::Status ApplyOverrides(absl::Span<const ConfigOverride> overrides, JobConfig* job);

// Fills every default, resolves relative data paths against `base_dir`, then validates everything that can be
// known without data: ranges, contradictions, names. The model's tables are not derived here.
absl::StatusOr<JobConfig> EffectiveJobConfig(JobConfig job, const std::string& base_dir);
absl::Status ValidateJobConfig(const JobConfig& job);
absl::Status ValidateClusterConfig(const ClusterConfig& cluster);
ClusterConfig WithDefaults(ClusterConfig cluster);

std::string ToTextproto(const google::protobuf::Message& message);

}  // namespace sluice
