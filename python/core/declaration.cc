#include "python/core/declaration.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/config/feature_patterns.h"
#include "common/config/job_config.h"
#include "common/config/own_data.h"
#include "common/config/textproto_file.h"
#include "common/places/places_env.h"
#include "common/saved_model/saved_model.h"
#include "common/table/table_layout.h"
#include "model/built_in_models.h"
#include "model/data/file_columns.h"
#include "model/program/program_spec.h"
#include "python/core/given_batch.h"
#include "python/core/json_text.h"

namespace sluice {
namespace {

// One piece of a parameter that is a shard of its table.
ShardValues PieceOf(const TableLayout& layout, uint32_t shard, const ParameterValues& parameter) {
  ShardValues piece;
  piece.first_element = shard * layout.block_elements();
  const float* const begin = parameter.values + piece.first_element;
  piece.weights.assign(begin, begin + layout.ShardElements(shard));
  return piece;
}

absl::StatusOr<const ParameterValues*> Find(absl::Span<const ParameterValues> values,
                                            const TableLayout& layout) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](const auto& one) { return one.name == layout.name(); });
  if (found == values.end())
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", layout.name(), "' has no values"));
  if (found->n == layout.elements()) return &*found;
  return absl::InvalidArgumentError(absl::StrCat("parameter '", layout.name(), "' has ", found->n,
                                                 " values; its shape has ", layout.elements()));
}

// Saves the parameters as a model. Its sparse tables have no rows, so that every key starts from
// the job's initializer.
absl::Status SaveValues(const std::string& dir, const JobConfig& job,
                        absl::Span<const ParameterValues> values, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const auto spec, ModelSpec::Create(job, BuiltInSpecs()));
  Manifest manifest;
  manifest.set_version(1);
  manifest.set_job_id(job.name());
  for (const TableConfig& table : spec->tables()) *manifest.add_tables() = table;
  for (TableConfig& table : *manifest.mutable_tables()) {
    if (table.kind() != TableConfig::SPARSE) continue;
    table.set_num_shards(1);
    table.clear_admit();  // its sketch would be too large for one shard, and no row is there
  }
  SLUICE_ASSIGN_OR_RETURN(const TableLayouts layouts,
                          CreateTableLayouts(manifest.tables(), job.train().seed()));
  for (const auto& layout : layouts) {
    const ParameterValues* parameter = nullptr;
    if (!layout->sparse()) {
      SLUICE_ASSIGN_OR_RETURN(parameter, Find(values, *layout));
    }
    for (uint32_t shard = 0; shard < layout->num_files(); ++shard) {
      const ShardValues piece =
          layout->sparse() ? ShardValues() : PieceOf(*layout, shard, *parameter);
      SLUICE_ASSIGN_OR_RETURN(*manifest.add_files(),
                              WriteShardFile(dir, *layout, shard, piece, env));
    }
  }
  return FinishModel(dir, job, std::move(manifest), env).status();
}

// Expands the features that stand for columns of the table.
absl::Status ExpandWildcards(std::vector<std::string> columns, JobConfig* job) {
  FeaturePatterns patterns(job);
  if (!patterns.HasWildcards()) return absl::OkStatus();
  if (columns.empty()) {
    return absl::InvalidArgumentError(
        "features: a '*' stands for columns, which only a table has (source=), and a reader of one "
        "does not tell before it is read; give a table, or name each feature");
  }
  // These are the label and the weight where the job does not name them.
  const auto drop = [&](const char* name) {
    columns.erase(std::remove(columns.begin(), columns.end(), name), columns.end());
  };
  if (job->data().label().column().empty()) drop("label");
  if (job->data().weight_column().empty()) drop("weight");
  absl::Status expanded = patterns.ExpandRanges();
  if (expanded.ok()) expanded = patterns.ExpandWildcards(columns);
  if (expanded.ok()) return expanded;
  return absl::InvalidArgumentError(absl::StrCat(FieldOf(expanded), ": ", expanded.message()));
}

// Says in the job where its data comes from.
absl::Status ApplySources(const ProgramSources& sources, JobConfig* job) {
  const bool gives = ProgramGivesData(*job);
  if (sources.train && !gives) {
    return absl::InvalidArgumentError(
        "the job names data files, but the program gives the data (source=); remove data "
        "{ train_files, eval_files } or source=");
  }
  if (!sources.train && gives) {
    return absl::InvalidArgumentError(
        "the job has no data: name data.train_files, or give sluice.torch.worker(..., source=...)");
  }
  if (!gives) return absl::OkStatus();
  if (!sources.evaluate && job->has_eval()) {
    return absl::InvalidArgumentError(
        "the job has eval { ... }, but the program gives no data to evaluate; remove it, or give "
        "sluice.torch.worker(..., eval_source=...)");
  }
  if (sources.evaluate) job->mutable_eval();
  std::vector<ConfigProblem> problems;
  if (!sources.table) problems = FindOfColumns(*job);
  if (problems.empty() && sources.batches) problems = FindNotGiven(*job);
  if (!problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(problems.front().path, ": ", problems.front().text));
  }
  return ExpandWildcards(sources.columns, job);
}

}  // namespace

absl::StatusOr<JobConfig> DeclareJob(const std::string& text, const std::string& base_dir,
                                     const std::string& program, const ProgramSources& sources) {
  JobConfig job;
  SLUICE_RETURN_IF_ERROR(ParseTextproto(text, "the job", &job, nullptr));
  if (job.has_model()) {
    return absl::InvalidArgumentError(
        "the job has a model, but the program is its model; remove model { ... }");
  }
  SLUICE_RETURN_IF_ERROR(ParseJson(program, "the program", job.mutable_model()->mutable_program()));
  SLUICE_RETURN_IF_ERROR(ApplySources(sources, &job));
  ResolvePaths(base_dir, &job);
  job.mutable_model()->mutable_program()->set_digest(ProgramDigest(job));
  return job;
}

absl::Status OfferJob(const std::string& dir, JobConfig job,
                      absl::Span<const ParameterValues> values, Env* env) {
  const std::string file = dir + "/job.textproto";
  if (env->Exists(file)) return absl::OkStatus();
  // As the launcher will load it, but for its overrides, none of which changes a parameter's shape.
  const std::string draft = dir + "/draft.textproto";
  const auto load = [&](const JobConfig& of) -> absl::StatusOr<JobConfig> {
    SLUICE_RETURN_IF_ERROR(env->WriteFile(draft, {ToTextproto(of)}));
    return LoadJobConfig(draft, {}, BuiltInSpecs(), nullptr, ColumnsReader(AllPlaces()));
  };
  absl::StatusOr<JobConfig> effective = load(job);
  if (!effective.ok() && job.data().day().empty()) {
    // The day of a daily job usually comes with the launch (--set data.day=...). The launcher
    // refuses the job when it does not.
    JobConfig with_day = job;
    with_day.mutable_data()->set_day("1970-01-01");
    absl::StatusOr<JobConfig> other = load(with_day);
    if (other.ok()) effective = std::move(other);
  }
  SLUICE_RETURN_IF_ERROR(effective.status());
  const std::string folder = dir + "/initial_values";
  SLUICE_RETURN_IF_ERROR(SaveValues(folder, *effective, values, env));
  job.mutable_model()->mutable_program()->set_initial_values(folder);
  return env->WriteFile(file, {ToTextproto(job)});
}

absl::StatusOr<bool> CheckOffer(const std::string& dir, const JobConfig& declared, Env* env) {
  const std::string file = dir + "/job.textproto";
  if (!env->Exists(file)) return false;
  SLUICE_ASSIGN_OR_RETURN(const JobConfig job, ReadJobConfig(file));
  if (job.model().program().digest() == declared.model().program().digest()) return true;
  const std::string difference = FirstDifference(declared, job);
  return absl::FailedPreconditionError(absl::StrCat(
      "this program is another one than the program of the job, whose first worker wrote ", file,
      ": ", difference.empty() ? "the features differ" : difference,
      " (here -> in the job); all workers must run the same script with the same arguments"));
}

}  // namespace sluice
