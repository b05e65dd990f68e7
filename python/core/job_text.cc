#include "python/core/job_text.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "proto/config.pb.h"
#include "python/core/json_text.h"

namespace sluice {
namespace {

absl::StatusOr<JobConfig> Parse(const std::string& job) {
  JobConfig parsed;
  SLUICE_RETURN_IF_ERROR(ParseTextproto(job, "job", &parsed, nullptr));
  return parsed;
}

}  // namespace

absl::StatusOr<std::string> MergeIntoJob(const std::string& job, const std::string& json) {
  SLUICE_ASSIGN_OR_RETURN(JobConfig merged, Parse(job));
  JobConfig added;
  SLUICE_RETURN_IF_ERROR(ParseJson(json, "the job", &added));
  merged.MergeFrom(added);
  return ToTextproto(merged);
}

absl::StatusOr<std::string> SetInJob(const std::string& job, const std::string& path,
                                     const std::string& value) {
  SLUICE_ASSIGN_OR_RETURN(JobConfig changed, Parse(job));
  const ConfigOverride one = {path, value, absl::StrCat("set(\"", path, "\")")};
  SLUICE_RETURN_IF_ERROR(ApplyOverrides({one}, &changed));
  return ToTextproto(changed);
}

absl::StatusOr<std::string> ResolveJob(const std::string& job, const std::string& base_dir,
                                       const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(JobConfig resolved, Parse(job));
  ResolvePaths(base_dir, &resolved);
  if (resolved.name().empty()) resolved.set_name(name);
  return ToTextproto(resolved);
}

}  // namespace sluice
