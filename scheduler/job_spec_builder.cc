#include "scheduler/job_spec_builder.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/table/placement.h"
#include "common/table/table_layout.h"
#include "model/built_in_models.h"
#include "model/data/expand_files.h"
#include "model/model_match.h"
#include "model/model_spec.h"

namespace sluice {

absl::StatusOr<JobDraft> BuildJobDraft(const JobConfig& submitted, Env* env) {
  JobDraft draft;
  // In this order: a model is made only of an effective config, and the initial model is compared
  // with a config that is known to make a model. It also comes last because it reads files.
  SLUICE_ASSIGN_OR_RETURN(draft.config, EffectiveJobConfig(submitted, "", BuiltInSpecs()));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSpec> model,
                          ModelSpec::Create(draft.config, BuiltInSpecs()));
  draft.tables = model->tables();
  SLUICE_ASSIGN_OR_RETURN(draft.warnings, CheckInitialModel(draft.config, BuiltInSpecs(), env));
  for (std::string& warning : WarnOfFilesNamedAgain(draft.config, env))
    draft.warnings.push_back(std::move(warning));
  return draft;
}

absl::Status PlaceJob(const std::vector<std::string>& pservers, JobSpec* spec) {
  ResolveShards(static_cast<uint32_t>(pservers.size()), spec->mutable_tables());
  SLUICE_ASSIGN_OR_RETURN(const TableLayouts layouts,
                          CreateTableLayouts(spec->tables(), spec->config().train().seed()));
  const Route before = spec->route();
  *spec->mutable_route() = before.tables().empty()
                               ? PlaceShards(layouts, pservers, /*generation=*/1)
                               : MoveShards(layouts, before, pservers, /*generation=*/1);
  return absl::OkStatus();
}

}  // namespace sluice
