#include "tests/model/linear_model/linear_rules.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"

namespace sluice {
namespace {

constexpr char kOptions[] = "model.custom.options";

}  // namespace

absl::StatusOr<LinearModelConfig> LinearOptionsOf(const JobConfig& job) {
  LinearModelConfig options;
  SLUICE_RETURN_IF_ERROR(
      ParseTextproto(job.model().custom().options(), "options", &options, nullptr));
  return options;
}

void LinearRules::FillDefaults(JobConfig* job) const {
  auto options = LinearOptionsOf(*job);
  if (!options.ok()) return;  // FindProblems reports it
  if (!options->has_bias()) options->set_bias(true);
  job->mutable_model()->mutable_custom()->set_options(ToTextproto(*options));
}

ModelParts LinearRules::PartsOf(const JobConfig&) const {
  ModelParts parts;
  parts.no_embedding = parts.no_wide =
      "has no effect: a linear model has no sparse table; remove it";
  return parts;
}

std::vector<ConfigProblem> LinearRules::FindProblems(const JobConfig& job) const {
  const auto options = LinearOptionsOf(job);
  if (!options.ok()) return {{kOptions, std::string(options.status().message())}};
  if (std::isfinite(options->initial_bias())) return {};
  return {{kOptions, absl::StrCat("initial_bias ", options->initial_bias(),
                                  " is no finite number; give one")}};
}

std::vector<ConfigProblem> LinearRules::FindUnused(const JobConfig& job) const {
  const auto options = LinearOptionsOf(job);
  if (!options.ok() || options->bias() || options->initial_bias() == 0) return {};
  return {{kOptions, absl::StrCat("initial_bias ", options->initial_bias(),
                                  " has no effect with bias false; remove it")}};
}

}  // namespace sluice
