#include "model/table_files/table_export.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/model_spec.h"
#include "model/table_files/feature_keys.h"
#include "model/table_files/model_folder.h"
#include "model/table_files/named_rows.h"
#include "model/table_files/npz_export.h"
#include "model/table_files/parquet_export.h"
#include "model/table_files/saved_rows.h"
#include "model/table_files/vocabulary.h"

namespace sluice {
namespace {

// The vocabulary of the options or of the job, with its index.
absl::StatusOr<Vocabulary> ReadNames(const ExportOptions& options, const JobConfig& job,
                                     const FeatureKeys& keys, Env* env) {
  std::optional<Vocabulary> names;
  if (!options.vocabulary.empty()) {
    SLUICE_ASSIGN_OR_RETURN(names, Vocabulary::Read(options.vocabulary, env));
  } else {
    for (const Feature& feature : job.features()) {
      if (feature.name() != options.feature || feature.categorical().vocabulary().empty()) continue;
      const auto& words = feature.categorical().vocabulary();
      names = Vocabulary::Of({words.begin(), words.end()});
    }
  }
  if (!names) {
    return absl::InvalidArgumentError(
        absl::StrCat("feature '", options.feature,
                     "' has no vocabulary in the job, and a table has keys alone; give "
                     "--vocabulary=FILE with its values, one a line"));
  }
  SLUICE_RETURN_IF_ERROR(names->MakeIndex(keys));
  return *std::move(names);
}

absl::Status CheckOptions(const ExportOptions& options) {
  if (options.feature.empty() && !options.vocabulary.empty()) {
    return absl::InvalidArgumentError(
        "--vocabulary needs --feature=NAME: the same value has another key in another feature");
  }
  if (absl::EndsWith(options.output, ".npz") || absl::EndsWith(options.output, ".parquet"))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--output=", options.output,
                   " tells no format; give a name that ends with .parquet or .npz"));
}

}  // namespace

absl::StatusOr<ExportReport> ExportTable(const ExportOptions& options, const ModelList& models,
                                         Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckOptions(options));
  const bool parquet = absl::EndsWith(options.output, ".parquet");
  if (parquet) SLUICE_RETURN_IF_ERROR(CheckParquet());
  SLUICE_ASSIGN_OR_RETURN(const ModelFolder model, ModelFolder::Read(options.model, env));
  std::optional<FeatureKeys> keys;
  if (!options.feature.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const auto spec, ModelSpec::Create(model.job, models));
    SLUICE_ASSIGN_OR_RETURN(keys, FeatureKeys::Create(model.job, *spec, options.feature));
    if (!options.table.empty() && options.table != keys->table()) {
      return absl::InvalidArgumentError(absl::StrCat("the rows of feature '", options.feature,
                                                     "' are in table '", keys->table(),
                                                     "', not in '", options.table, "'"));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(
      const TableLayout* const table,
      ChooseTable(options.model, model.layouts,
                  options.table.empty() && keys ? keys->table() : options.table));
  ExportReport report;
  report.table = table->name();
  report.sparse = table->sparse();
  if (options.state && !model.checkpoint()) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.model,
                     " is a model, which has no optimizer state; give a checkpoint "
                     "(a folder step-N), or leave out --state"));
  }
  if (!table->sparse()) {
    if (parquet) {
      return absl::InvalidArgumentError(
          absl::StrCat("table '", table->name(), "' is dense, one tensor; give --output=FILE.npz"));
    }
    SLUICE_ASSIGN_OR_RETURN(auto file, env->StartFile(options.output));
    report.rows = table->elements();
    SLUICE_RETURN_IF_ERROR(
        WriteDenseNpz(options.model, model.manifest, *table, options.state, env, std::move(file)));
    return report;
  }

  std::optional<Vocabulary> names;
  if (keys) {
    SLUICE_ASSIGN_OR_RETURN(names, ReadNames(options, model.job, *keys, env));
  }
  SLUICE_ASSIGN_OR_RETURN(
      auto saved, SavedRows::Open(options.model, model.manifest, table, options.state, env));
  NamedRows rows(std::move(saved), names ? &*names : nullptr);
  SLUICE_ASSIGN_OR_RETURN(report.rows, rows.Count());
  report.unnamed_rows = rows.table_rows() - report.rows;
  if (names) report.unused_values = names->values() - report.rows;
  SLUICE_ASSIGN_OR_RETURN(auto file, env->StartFile(options.output));
  SLUICE_RETURN_IF_ERROR(parquet ? WriteParquet(&rows, options.feature, std::move(file))
                                 : WriteNpz(&rows, report.rows, options.feature, std::move(file)));
  return report;
}

}  // namespace sluice
