#include "model/wide_deep/wide_deep_rules.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/features/dense_rows.h"
#include "model/features/sparse_table_plan.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxUnits = 1 << 16;
constexpr int kMaxLayers = 1000;
constexpr uint32_t kMaxEmbeddingDim = 4096;
// Most bytes of values in a dense table of features. A worker holds several times as much: values,
// gradients and optimizer state.
constexpr uint64_t kMaxDenseTableBytes = uint64_t{4} << 30;

// The first feature with rows in dense tables whose width is not `dim`; -1: all have it.
int FindDenseOfOtherWidth(const JobConfig& job, uint32_t dim) {
  for (int i = 0; i < job.features_size(); ++i) {
    const Feature& feature = job.features(i);
    if (IsDense(feature) && feature.has_embedding_dim() && feature.embedding_dim() != dim) return i;
  }
  return -1;
}

// Problems of the widths, keys and tables of features.
void FindFeatureProblems(const JobConfig& job, std::vector<ConfigProblem>* problems) {
  const size_t before = problems->size();
  const WideDeepConfig& config = job.model().wide_deep();
  const auto path = [](int i) { return absl::StrCat("features[", i, "].embedding_dim"); };
  for (int i = 0; i < job.features_size(); ++i) {
    const Feature& feature = job.features(i);
    // The model's own width is checked there.
    if (feature.has_embedding_dim() && feature.embedding_dim() != config.embedding_dim() &&
        HasKeys(feature) && !config.hidden_units().empty())
      AddIfOutOfRange(path(i), feature.embedding_dim(), 1, kMaxEmbeddingDim, problems);
  }
  const int other = FindDenseOfOtherWidth(job, config.embedding_dim());
  if (other >= 0) {
    problems->push_back(
        {path(other),
         absl::StrCat(job.features(other).embedding_dim(),
                      " differs from model.wide_deep.embedding_dim ", config.embedding_dim(),
                      ", which all features with dense: true have; remove it")});
  }
  if (problems->size() > before) return;
  // Features that contradict each other.
  const absl::Status plan = PlanSparseTables(job, WideDeepUseOf(job)).status();
  if (!plan.ok()) problems->push_back({FieldOf(plan), std::string(plan.message())});
}

// Whether each feature with rows in the deep part says how wide its embedding is.
bool AllHaveWidths(const JobConfig& job) {
  return std::all_of(job.features().begin(), job.features().end(), [](const Feature& feature) {
    return !HasKeys(feature) || !InDeep(feature) ||
           (feature.has_embedding_dim() && !IsDense(feature));
  });
}

// Widths of features whose rows have no embedding, because the deep part would not read it.
void FindUnusedWidths(const JobConfig& job, std::vector<ConfigProblem>* problems) {
  const uint32_t dim = job.model().wide_deep().embedding_dim();
  const FeatureUse use = WideDeepUseOf(job);
  const auto plan = PlanSparseTables(job, use);
  if (!plan.ok()) return;  // FindProblems reports it
  std::vector<bool> read(plan->tables.size(), false);
  std::set<std::string> in_tables;
  for (const SparseTablePlan::Table& table : plan->tables)
    in_tables.insert(table.features.begin(), table.features.end());
  const auto has_rows = [&](int i) { return in_tables.count(job.features(i).name()) > 0; };
  for (int i = 0; i < job.features_size(); ++i) {
    if (has_rows(i) && job.features(i).in_deep() && use.keys.deep) read[plan->table_of[i]] = true;
  }
  for (int i = 0; i < job.features_size(); ++i) {
    const Feature& feature = job.features(i);
    if (!feature.has_embedding_dim() || feature.embedding_dim() == dim || IsDense(feature))
      continue;
    if (!HasKeys(feature) || (has_rows(i) && read[plan->table_of[i]])) continue;
    problems->push_back({absl::StrCat("features[", i, "].embedding_dim"),
                         absl::StrCat(feature.embedding_dim(), " of '", feature.name(),
                                      "' has no effect: the deep part uses neither this feature "
                                      "nor another one of its table; remove it")});
  }
}

// The dense table of the `part` with rows of `floats`, if it is too large. `uses`: whether the part
// uses a feature.
template <typename Uses>
void FindTableProblem(const JobConfig& job, const char* part, uint64_t floats, const Uses& uses,
                      std::vector<ConfigProblem>* problems) {
  uint64_t rows = 0, most = 0;
  int largest = -1;
  for (int i = 0; i < job.features_size(); ++i) {
    if (!IsDense(job.features(i)) || !uses(job.features(i))) continue;
    const uint64_t own = DenseRowsOf(job.features(i));
    // At most kMaxDenseRows together, so the product below cannot overflow.
    rows += own;
    // The message names the feature with the most rows, which is the one to change.
    if (own <= most) continue;
    most = own;
    largest = i;
  }
  const uint64_t bytes = rows * floats * sizeof(float);
  if (bytes <= kMaxDenseTableBytes) return;
  problems->push_back(
      {DensePath(job, largest),
       absl::StrFormat(
           "true: the dense features of the %s part have %d rows (%d of them '%s'), %.1f GiB; "
           "give the dense table at most %d GiB: lower hash_buckets, or remove dense from all "
           "features, so that they use the sparse table",
           part, rows, most, job.features(largest).name(), static_cast<double>(bytes) * 0x1p-30,
           kMaxDenseTableBytes >> 30)});
}

void FindDenseTableProblems(const JobConfig& job, std::vector<ConfigProblem>* problems) {
  const std::vector<ConfigProblem> dense = FindDenseProblems(job);
  problems->insert(problems->end(), dense.begin(), dense.end());
  // Without a bound on the rows there is no size to check.
  if (!dense.empty()) return;
  const WideDeepConfig& config = job.model().wide_deep();
  if (!config.hidden_units().empty()) {
    FindTableProblem(
        job, "deep", config.embedding_dim(), [](const Feature& f) { return f.in_deep(); },
        problems);
  }
  if (config.wide_categorical()) {
    FindTableProblem(
        job, "wide", 1, [](const Feature& f) { return f.in_wide(); }, problems);
  }
}

}  // namespace

FeatureUse WideDeepUseOf(const JobConfig& job) {
  const WideDeepConfig& config = job.model().wide_deep();
  FeatureUse use;
  use.numbers.deep = use.keys.deep = !config.hidden_units().empty();
  // The parts of the wide part are on by default.
  use.numbers.wide = !config.has_wide_numeric() || config.wide_numeric();
  use.keys.wide = !config.has_wide_categorical() || config.wide_categorical();
  // WideDeepSpec makes these tables.
  use.dense_rows = true;
  use.several_tables = true;
  use.embedding_dim = config.embedding_dim();
  use.key_weights = true;
  use.numbers.needs = "in_wide needs model.wide_deep.wide_numeric, in_deep needs hidden_units";
  use.keys.needs = "in_wide needs model.wide_deep.wide_categorical, in_deep needs hidden_units";
  return use;
}

void WideDeepRules::FillDefaults(JobConfig* job) const {
  WideDeepConfig* config = job->mutable_model()->mutable_wide_deep();
  // The options of the wide part come first: PartsOf reads them.
  if (!config->has_wide_numeric()) config->set_wide_numeric(true);
  if (!config->has_wide_categorical()) config->set_wide_categorical(true);
  // FindUnused would refuse an initializer in a job without embeddings.
  if (PartsOf(*job).embedding() &&
      config->embedding_initializer().kind_case() == Initializer::KIND_NOT_SET) {
    config->mutable_embedding_initializer()->mutable_uniform()->set_min(-0.05f);
    config->mutable_embedding_initializer()->mutable_uniform()->set_max(0.05f);
  }
}

ModelParts WideDeepRules::PartsOf(const JobConfig& job) const {
  const WideDeepConfig& config = job.model().wide_deep();
  const bool deep = !config.hidden_units().empty();
  // Only features with keys have rows.
  const bool any_deep_keys =
      std::any_of(job.features().begin(), job.features().end(),
                  [](const Feature& feature) { return HasKeys(feature) && feature.in_deep(); });
  const bool any_wide_keys =
      std::any_of(job.features().begin(), job.features().end(),
                  [](const Feature& feature) { return HasKeys(feature) && feature.in_wide(); });
  ModelParts parts;
  // wide_numeric also brings the wide bias, so no numeric feature is needed for a dense table.
  if (!deep && !config.wide_numeric()) {
    parts.no_dense =
        "has no effect without hidden_units and with model.wide_deep.wide_numeric false; remove it";
  }
  if (!deep) {
    parts.no_embedding = "has no effect without hidden_units; remove it or add hidden layers";
  } else if (!any_deep_keys) {
    parts.no_embedding =
        "has no effect: no categorical, bucketed or crossed feature is in_deep; remove it";
  }
  if (!config.wide_categorical()) {
    parts.no_wide = "has no effect with model.wide_deep.wide_categorical false; remove it";
  } else if (!any_wide_keys) {
    parts.no_wide =
        "has no effect: no categorical, bucketed or crossed feature is in_wide; remove it";
  }
  // FindProblems refuses jobs with both kinds.
  if (std::any_of(job.features().begin(), job.features().end(), IsDense)) {
    parts.no_sparse =
        "has no effect: the features have dense: true, so the model has no sparse table; remove it";
  }
  return parts;
}

std::vector<ConfigProblem> WideDeepRules::FindProblems(const JobConfig& job) const {
  const WideDeepConfig& config = job.model().wide_deep();
  std::vector<ConfigProblem> problems;
  FindFeatureProblems(job, &problems);
  FindDenseTableProblems(job, &problems);
  if (config.hidden_units_size() > kMaxLayers) {
    problems.push_back(
        {"model.wide_deep.hidden_units",
         absl::StrCat("has ", config.hidden_units_size(), " layers; give at most ", kMaxLayers)});
  }
  for (int i = 0; i < config.hidden_units_size(); ++i) {
    AddIfOutOfRange(absl::StrCat("model.wide_deep.hidden_units[", i, "]"), config.hidden_units(i),
                    1, kMaxUnits, &problems);
  }
  // Written as a negation so that NaN is refused.
  if (!(config.dropout() >= 0 && config.dropout() < 1)) {
    problems.push_back(
        {"model.wide_deep.dropout",
         absl::StrCat(config.dropout(), " is not a probability; give one in [0, 1)")});
  }
  if (config.dropout() > 0 && config.hidden_units().empty()) {
    problems.push_back({"model.wide_deep.dropout",
                        "has no effect without hidden_units; remove it or add hidden layers"});
  }
  if (config.embedding_dim() == 0 && PartsOf(job).embedding() && !AllHaveWidths(job)) {
    problems.push_back({"model.wide_deep.embedding_dim",
                        "is missing; the deep part has categorical features: give their width, "
                        "e.g. 16"});
  }
  // 0 means unset here, which is right for a job without embeddings.
  if (config.embedding_dim() > kMaxEmbeddingDim) {
    AddIfOutOfRange("model.wide_deep.embedding_dim", config.embedding_dim(), 1, kMaxEmbeddingDim,
                    &problems);
  }
  if (config.hidden_units().empty() && !config.wide_numeric() && !config.wide_categorical()) {
    problems.push_back({"model.wide_deep",
                        "has neither a wide nor a deep part; set wide_numeric, wide_categorical or "
                        "hidden_units"});
  }
  AddInitializerProblems("model.wide_deep.embedding_initializer", config.embedding_initializer(),
                         &problems);
  return problems;
}

std::vector<ConfigProblem> WideDeepRules::FindUnused(const JobConfig& job) const {
  const WideDeepConfig& config = job.model().wide_deep();
  const ModelParts parts = PartsOf(job);
  std::vector<ConfigProblem> problems;
  FindUnusedWidths(job, &problems);
  if (parts.embedding()) return problems;
  if (config.embedding_dim() > 0) {
    problems.push_back({"model.wide_deep.embedding_dim",
                        absl::StrCat(config.embedding_dim(), " ", parts.no_embedding)});
  }
  if (config.has_embedding_initializer())
    problems.push_back({"model.wide_deep.embedding_initializer", parts.no_embedding});
  return problems;
}

}  // namespace sluice
