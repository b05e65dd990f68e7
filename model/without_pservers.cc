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

constexpr size_t kNamed = 8;

// True when a dense table for the feature needs hash_buckets first. Boundaries and vocabularies
// bound the keys as well (dense_rows.h).
bool NeedsHashBuckets(const Feature& feature) {
  if (feature.has_cross()) return feature.cross().hash_buckets() == 0;
  const CategoricalFeature& categorical = feature.categorical();
  return feature.has_categorical() && categorical.hash_buckets() == 0 &&
         categorical.vocabulary().empty();
}

// The quoted names; of many, the first ones and the number of the others.
std::string Listed(std::vector<std::string> names) {
  for (std::string& name : names) name = absl::StrCat("\"", name, "\"");
  const size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
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
      unbounded.empty() ? "" : absl::StrCat(", and hash_buckets to ", Listed(unbounded));
  return absl::StrCat("features: ", Listed(features), " have keys in the sparse table ",
                      absl::StrJoin(sparse, ", "),
                      ", which only pservers keep; start pservers (--server_num=1 or more), or "
                      "give `dense: true` to these features",
                      bounds);
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
  if (!problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job cannot run without pservers:\n", absl::StrJoin(problems, "\n")));
  }
  if (job->strategy().sync_configs().dense() == SyncConfigs::COLLECTIVE) return std::string();
  JobConfig fitted = *job;
  if (mode != Mode::kSync) fitted.clear_strategy();
  fitted.mutable_strategy()->set_a_sync(false);
  fitted.mutable_strategy()->mutable_sync_configs()->set_dense(SyncConfigs::COLLECTIVE);
  SLUICE_ASSIGN_OR_RETURN(*job, EffectiveJobConfig(std::move(fitted), "", models));
  return std::string(
      "the cluster has no pservers, so the workers keep the dense tables "
      "(strategy.sync_configs.dense: COLLECTIVE)");
}

absl::StatusOr<bool> NeedsNoPservers(const ModelList& models, const JobConfig& job) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(job, models));
  const std::vector<TableConfig>& tables = model->tables();
  return std::all_of(tables.begin(), tables.end(), [](const TableConfig& table) {
    return table.update_at() == TableConfig::COLLECTIVE;
  });
}

}  // namespace sluice
