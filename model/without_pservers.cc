#include "model/without_pservers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "model/features/dense_rows.h"
#include "model/model_spec.h"

namespace sluice {
namespace {

constexpr size_t kListedNames = 8;

// True when a dense table for the feature needs hash_buckets first. Boundaries and vocabularies
// bound the keys as well (dense_rows.h).
bool NeedsHashBuckets(const Feature& feature) {
  if (feature.has_cross()) return feature.cross().hash_buckets() == 0;
  const CategoricalFeature& categorical = feature.categorical();
  return feature.has_categorical() && categorical.hash_buckets() == 0 &&
         categorical.vocabulary().empty();
}

// The quoted names; of many, the first ones and the number of the others.
std::string ListedNames(std::vector<std::string> names) {
  for (std::string& name : names) name = absl::StrCat("\"", name, "\"");
  const size_t more = names.size() > kListedNames ? names.size() - kListedNames : 0;
  names.resize(names.size() - more);
  if (more > 0) names.push_back(absl::StrCat(more, " more"));
  return absl::StrJoin(names, ", ");
}

// Why a model with sparse tables needs pservers; "" when it has none.
std::string SparseProblem(const JobConfig& job, const std::vector<TableConfig>& tables) {
  std::vector<std::string> sparse, features, unbounded;
  for (const TableConfig& table : tables)
    if (table.kind() == TableConfig::SPARSE) sparse.push_back(table.name());
  if (sparse.empty()) return "";
  for (const Feature& feature : job.features()) {
    if (!HasRows(feature) || IsDense(feature)) continue;
    features.push_back(feature.name());
    if (NeedsHashBuckets(feature)) unbounded.push_back(feature.name());
  }
  const std::string bounds =
      unbounded.empty() ? "" : absl::StrCat(", and hash_buckets to ", ListedNames(unbounded));
  return absl::StrCat("features: ", ListedNames(features), " have keys in the sparse table",
                      sparse.size() > 1 ? "s " : " ", absl::StrJoin(sparse, ", "),
                      ", which only pservers keep; start pservers (--server_num=1 or more), or "
                      "give `dense: true` to these features",
                      bounds);
}

bool AllOnWorkers(const std::vector<TableConfig>& tables) {
  return std::all_of(tables.begin(), tables.end(), [](const TableConfig& table) {
    return table.update_at() == TableConfig::COLLECTIVE;
  });
}

// Why dense tables need pservers although workers could keep them; "" when none does. A job that
// says who keeps single tables is not changed, but one that only evaluates may be.
std::string DenseProblem(const JobConfig& job, const std::vector<TableConfig>& tables) {
  if (job.evaluate_only()) return "";
  std::vector<std::string> stay;
  for (const TableConfig& table : tables) {
    const auto own = std::find_if(job.tables().begin(), job.tables().end(),
                                  [&](const TableConfig& t) { return t.name() == table.name(); });
    const bool says = own != job.tables().end() && own->has_update_at();
    if (table.kind() == TableConfig::DENSE && table.update_at() != TableConfig::COLLECTIVE &&
        (says || WorkersKeepDenseTables(job)))
      stay.push_back(table.name());
  }
  if (stay.empty()) return "";
  return absl::StrCat("tables: ", ListedNames(stay),
                      " would be on pservers, because update_at is not COLLECTIVE; set update_at: "
                      "COLLECTIVE for them too, or start pservers (--server_num=1 or more)");
}

}  // namespace

absl::StatusOr<std::string> FitWithoutPservers(const ModelList& models, JobConfig* job) {
  const Mode mode = ModeOf(job->strategy());
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(*job, models));
  std::vector<std::string> problems;
  if (mode != Mode::kSync && !job->evaluate_only()) {
    problems.push_back(absl::StrCat(
        "strategy.a_sync: in mode ", ModeName(mode),
        " the workers exchange their updates through pservers; give --a_sync=false, or start "
        "pservers (--server_num=1 or more)"));
  }
  if (std::string sparse = SparseProblem(*job, model->tables()); !sparse.empty())
    problems.push_back(std::move(sparse));
  if (std::string stays = DenseProblem(*job, model->tables()); !stays.empty())
    problems.push_back(std::move(stays));
  if (!problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job cannot run without pservers:\n", absl::StrJoin(problems, "\n")));
  }
  if (AllOnWorkers(model->tables())) return std::string();
  // A copy: the job stays as it was if its defaults cannot be filled in again.
  JobConfig fitted = *job;
  if (mode != Mode::kSync) fitted.clear_strategy();
  // update_at is no longer needed: `dense: COLLECTIVE` says it of all tables, and a job that only
  // evaluates may be changed.
  for (TableConfig& table : *fitted.mutable_tables()) table.clear_update_at();
  fitted.mutable_strategy()->set_a_sync(false);
  fitted.mutable_strategy()->mutable_sync_configs()->set_dense(SyncConfigs::COLLECTIVE);
  SLUICE_ASSIGN_OR_RETURN(*job, EffectiveJobConfig(std::move(fitted), "", models));
  return std::string(
      "the cluster has no pservers, so the workers keep the dense tables "
      "(strategy.sync_configs.dense: COLLECTIVE)");
}

absl::StatusOr<bool> NeedsNoPservers(const ModelList& models, const JobConfig& job) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(job, models));
  return AllOnWorkers(model->tables());
}

}  // namespace sluice
