#include "tests/model/counting_model/counting_spec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/optimizer/update_rule.h"
#include "model/features/cell.h"
#include "model/features/feature_use.h"
#include "model/model_spec.h"

namespace sluice {
namespace {

constexpr int kTotals = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSpec>> CountingSpec::Create(const JobConfig& job) {
  std::unique_ptr<CountingSpec> spec(new CountingSpec);
  FeatureUse use;
  use.numbers.deep = use.keys.deep = false;
  use.numbers.needs = use.keys.needs = "a counting model uses the features that are in_wide";
  SLUICE_ASSIGN_OR_RETURN(spec->schema_, FeatureSchema::Create(job, use));
  if (spec->schema_->slots().empty()) {
    return AtField("features", absl::InvalidArgumentError(
                                   "features: a counting model needs keys; declare a feature"));
  }
  const OptimizerConfig optimizer = WithDefaults(job.optimizers().all());
  TableConfig count;
  count.set_name("count");
  count.set_kind(TableConfig::SPARSE);
  ColumnGroup* column = count.add_columns();
  column->set_name("count");
  column->set_dim(1);
  column->mutable_initializer()->set_constant(0);
  *column->mutable_optimizer() = optimizer;
  spec->tables_.push_back(std::move(count));
  for (int i = 0; i < kTotals; ++i) {
    TableConfig total;
    total.set_name(absl::StrCat("total/", i));
    total.set_kind(TableConfig::DENSE);
    total.add_shape(1 + spec->schema_->numerics().size());
    total.mutable_initializer()->set_constant(0);
    *total.mutable_optimizer() = optimizer;
    spec->dense_tables_.push_back(static_cast<int>(spec->tables_.size()));
    spec->tables_.push_back(std::move(total));
  }
  SLUICE_RETURN_IF_ERROR(CompleteTables(job, &spec->tables_));
  return spec;
}

std::map<std::string, std::vector<std::string>> CountingSpec::ordered_inputs() const {
  std::vector<std::string> numbers;
  for (const FeatureSchema::Numeric& numeric : schema_->numerics())
    numbers.push_back(absl::StrCat("the number of ", QuotedCell(numeric.name)));
  return {{"wide", std::move(numbers)}};
}

}  // namespace sluice
