#include "tests/model/linear_model/linear_spec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/optimizer/update_rule.h"
#include "model/features/cell.h"
#include "model/features/feature_use.h"
#include "model/model_spec.h"
#include "tests/model/linear_model/linear_rules.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<ModelSpec>> LinearSpec::Create(const JobConfig& job) {
  SLUICE_ASSIGN_OR_RETURN(const LinearModelConfig options, LinearOptionsOf(job));
  std::unique_ptr<LinearSpec> spec(new LinearSpec);
  // Numbers are in the only part, `wide`; nothing uses keys.
  FeatureUse use;
  use.numbers.deep = use.keys.wide = use.keys.deep = false;
  use.numbers.needs = use.keys.needs = "a linear model uses the numeric features that are in_wide";
  SLUICE_ASSIGN_OR_RETURN(spec->schema_, FeatureSchema::Create(job, use));
  if (spec->schema_->numerics().empty()) {
    return AtField("features", absl::InvalidArgumentError(
                                   "features: a linear model needs a number; declare one"));
  }
  spec->AddTable(job, "weight", spec->schema_->numerics().size(), 0);
  if (options.bias()) spec->AddTable(job, "bias", 1, options.initial_bias());
  SLUICE_RETURN_IF_ERROR(CompleteTables(job, &spec->tables_));
  return spec;
}

void LinearSpec::AddTable(const JobConfig& job, const char* name, size_t size,
                          float initial_value) {
  TableConfig table;
  table.set_name(name);
  table.set_kind(TableConfig::DENSE);
  table.add_shape(size);
  table.mutable_initializer()->set_constant(initial_value);
  const OptimizersConfig& optimizers = job.optimizers();
  *table.mutable_optimizer() =
      WithDefaults(optimizers.has_dense() ? optimizers.dense() : optimizers.all());
  dense_tables_.push_back(static_cast<int>(tables_.size()));
  tables_.push_back(std::move(table));
}

std::map<std::string, std::vector<std::string>> LinearSpec::ordered_inputs() const {
  std::vector<std::string> numbers;
  for (const FeatureSchema::Numeric& numeric : schema_->numerics())
    numbers.push_back(absl::StrCat("the number of ", QuotedCell(numeric.name)));
  return {{"wide", std::move(numbers)}};
}

}  // namespace sluice
