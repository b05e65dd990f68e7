#include "scheduler/find_initial_checkpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/saved_model/checkpoint.h"
#include "model/built_in_models.h"
#include "model/model_match.h"

namespace sluice {

absl::Status FindInitialCheckpoint(Env* env, JobConfig* config,
                                   std::vector<std::string>* warnings) {
  if (config->initial_checkpoint().empty()) return absl::OkStatus();
  std::vector<std::string> skipped;
  const auto found = FindCheckpoint(config->initial_checkpoint(), /*verify=*/true, env, &skipped);
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat("initial_checkpoint: ", found.status().message()));
  }
  for (const std::string& one : skipped) {
    warnings->push_back(absl::StrCat("initial_checkpoint: ", one, "; the job starts from ",
                                     found->dir, " instead"));
  }
  config->set_initial_checkpoint(found->dir);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> differences,
                          CheckInitialCheckpoint(*config, BuiltInSpecs()));
  warnings->insert(warnings->end(), differences.begin(), differences.end());
  return absl::OkStatus();
}

}  // namespace sluice
