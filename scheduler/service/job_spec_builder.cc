#include "scheduler/service/job_spec_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/table/placement.h"
#include "common/table/table_layout.h"
#include "model/built_in_models.h"
#include "model/data/expand_files.h"
#include "model/model_spec.h"
#include "model/without_pservers.h"

namespace sluice {

void JobDraft::TakeStart(StartCheck start) {
  warnings.insert(warnings.end(), start.warnings.begin(), start.warnings.end());
  notes = std::move(start.notes);
  if (!start.tables.empty()) tables = std::move(start.tables);
}

absl::StatusOr<JobDraft> BuildJobDraft(const JobConfig& submitted, uint32_t pserver_num, Env* env) {
  JobDraft draft;
  // In this order: a model is made only of an effective config, and the initial model is compared
  // with a config that is known to make a model. It also comes last because it reads files.
  SLUICE_ASSIGN_OR_RETURN(draft.config, EffectiveJobConfig(submitted, "", BuiltInSpecs()));
  if (pserver_num == 0) {
    SLUICE_ASSIGN_OR_RETURN(const std::string changed,
                            FitWithoutPservers(BuiltInSpecs(), &draft.config));
    if (!changed.empty()) draft.warnings.push_back(changed);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSpec> model,
                          ModelSpec::Create(draft.config, BuiltInSpecs()));
  draft.tables = model->tables();
  SLUICE_RETURN_IF_ERROR(CheckShards(draft.config, draft.tables, pserver_num));
  SLUICE_ASSIGN_OR_RETURN(StartCheck of_model,
                          CheckInitialModel(draft.config, BuiltInSpecs(), env));
  draft.TakeStart(std::move(of_model));
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::string> named, WarnOfFilesNamedAgain(draft.config, env));
  draft.warnings.insert(draft.warnings.end(), named.begin(), named.end());
  return draft;
}

absl::Status PlaceJob(const std::vector<std::string>& pservers, JobSpec* spec) {
  ResolveShards(static_cast<uint32_t>(pservers.size()), spec->mutable_tables());
  SLUICE_ASSIGN_OR_RETURN(const TableLayouts layouts,
                          CreateTableLayouts(spec->tables(), spec->config().train().seed()));
  const auto on_pserver = std::find_if(layouts.begin(), layouts.end(),
                                       [](const auto& table) { return table->num_shards() > 0; });
  if (pservers.empty() && on_pserver != layouts.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("table '", (*on_pserver)->name(),
                     "' belongs on pservers, and the cluster has none; start pservers "
                     "(--server_num, or pservers in the cluster file)"));
  }
  const Route before = spec->route();
  *spec->mutable_route() = before.tables().empty()
                               ? PlaceShards(layouts, pservers, /*generation=*/1)
                               : MoveShards(layouts, before, pservers, /*generation=*/1);
  return absl::OkStatus();
}

}  // namespace sluice
