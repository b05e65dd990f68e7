#include "model/wide_deep/wide_deep_spec.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/optimizer/update_rule.h"
#include "model/features/cell.h"
#include "model/model_spec.h"
#include "model/wide_deep/wide_deep_rules.h"

namespace sluice {
namespace {

std::string EmbeddingInput(const std::string& slot) {
  return absl::StrCat("the embedding of ", QuotedCell(slot));
}
std::string NumberInput(const std::string& numeric) {
  return absl::StrCat("the number of ", QuotedCell(numeric));
}

// An error about a field of model.wide_deep.
absl::Status RefuseField(absl::string_view field, absl::string_view why) {
  const std::string path = absl::StrCat("model.wide_deep.", field);
  return AtField(path, absl::InvalidArgumentError(absl::StrCat(path, ": ", why)));
}

Initializer Constant(float value) {
  Initializer initializer;
  initializer.set_constant(value);
  return initializer;
}

Initializer HeUniform(uint32_t fan_in) {
  Initializer initializer;
  initializer.mutable_he_uniform()->set_fan_in(fan_in);
  return initializer;
}

Initializer EmbeddingInitializer(const WideDeepConfig& config) {
  if (config.embedding_initializer().kind_case() != Initializer::KIND_NOT_SET)
    return config.embedding_initializer();
  Initializer initializer;
  initializer.mutable_uniform()->set_min(-0.05f);
  initializer.mutable_uniform()->set_max(0.05f);
  return initializer;
}

// `own` if the job sets it, else optimizers.all, with defaults filled in.
OptimizerConfig Optimizer(const OptimizersConfig& optimizers, bool has_own,
                          const OptimizerConfig& own) {
  return WithDefaults(has_own ? own : optimizers.all());
}

// A switch of the wide part, true by default.
bool On(bool present, bool value) { return !present || value; }

absl::Status CheckParts(const JobConfig& job) {
  const WideDeepConfig& config = job.model().wide_deep();
  if (!config.hidden_units().empty() || On(config.has_wide_numeric(), config.wide_numeric()) ||
      On(config.has_wide_categorical(), config.wide_categorical())) {
    return absl::OkStatus();
  }
  return RefuseField("wide_numeric",
                     "no part is on; set hidden_units, wide_numeric or wide_categorical");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSpec>> WideDeepSpec::Create(const JobConfig& job) {
  std::unique_ptr<WideDeepSpec> model(new WideDeepSpec);
  SLUICE_RETURN_IF_ERROR(CheckParts(job));
  const FeatureUse use = WideDeepUseOf(job);
  SLUICE_ASSIGN_OR_RETURN(model->schema_, FeatureSchema::Create(job, use));
  // The schema's slots refer to the tables of the same plan.
  SLUICE_ASSIGN_OR_RETURN(model->plan_, PlanSparseTables(job, use));
  SLUICE_RETURN_IF_ERROR(model->DeriveShape(job));
  model->DeriveRows();
  model->DeriveTables(job);
  SLUICE_RETURN_IF_ERROR(model->CheckNames());
  SLUICE_RETURN_IF_ERROR(CompleteTables(job, &model->tables_));
  return model;
}

absl::Status WideDeepSpec::DeriveShape(const JobConfig& job) {
  const WideDeepConfig& config = job.model().wide_deep();
  shape_.hidden.assign(config.hidden_units().begin(), config.hidden_units().end());
  shape_.dropout = config.dropout();
  shape_.bf16 = job.train().compute_dtype() == TrainConfig::BF16;
  shape_.wide_bias = On(config.has_wide_numeric(), config.wide_numeric());
  shape_.num_numeric = schema_->numerics().size();
  for (uint32_t i = 0; i < shape_.num_numeric; ++i) {
    const FeatureSchema::Numeric& numeric = schema_->numerics()[i];
    if (numeric.in_wide && shape_.wide_bias) shape_.wide_numeric.push_back(i);
    if (numeric.in_deep && shape_.deep()) shape_.deep_numeric.push_back(i);
  }
  SLUICE_RETURN_IF_ERROR(DeriveSlots(job));

  if (std::count(shape_.hidden.begin(), shape_.hidden.end(), 0u) > 0) {
    return RefuseField("hidden_units", "a layer has 0 units; give each at least 1, or remove it");
  }
  if (!(config.dropout() >= 0 && config.dropout() < 1)) {
    return RefuseField(
        "dropout", absl::StrCat(config.dropout(), " is not a probability; use 0 <= dropout < 1"));
  }
  if (shape_.deep() && shape_.deep_inputs() == 0) {
    return RefuseField(
        "hidden_units",
        "no feature is in the deep part; set in_deep on one, or remove hidden_units");
  }
  if (!shape_.deep() && !shape_.wide_bias && !shape_.any_wide_column()) {
    return RefuseField(
        "wide_categorical",
        "no feature has keys in the wide part, and no other part is on; set in_wide on one");
  }
  return absl::OkStatus();
}

absl::Status WideDeepSpec::DeriveSlots(const JobConfig& job) {
  const WideDeepConfig& config = job.model().wide_deep();
  const bool wide_categorical = On(config.has_wide_categorical(), config.wide_categorical());
  for (const FeatureSchema::Slot& slot : schema_->slots()) {
    WideDeepShape::Slot to;
    to.wide = slot.in_wide, to.deep = slot.in_deep;
    to.mean = slot.pooling == CategoricalFeature::MEAN;
    to.weighted = slot.weighted;
    to.table = slot.table;
    shape_.slots.push_back(to);
    if (shape_.tables() <= slot.table) {
      shape_.embedding_dims.resize(slot.table + 1, 0);
      shape_.wide_columns.resize(slot.table + 1, false);
    }
    // A part of a table's rows exists only where one of its features uses it. Otherwise every row
    // would carry values that nothing reads.
    if (slot.in_wide && wide_categorical) shape_.wide_columns[slot.table] = true;
    if (!slot.in_deep || !shape_.deep()) continue;
    // Rows of dense features have the model's width (WideDeepRules).
    const uint32_t dim =
        slot.rows.empty() ? plan_.tables[slot.table].width : config.embedding_dim();
    if (dim == 0) {
      return RefuseField("embedding_dim",
                         absl::StrCat("is 0, but there are hidden_units and \"", slot.name,
                                      "\" is in the deep part; set it, e.g. to 8"));
    }
    shape_.embedding_dims[slot.table] = dim;
  }
  return absl::OkStatus();
}

std::map<std::string, std::vector<std::string>> WideDeepSpec::ordered_inputs() const {
  std::vector<std::string> deep, wide;
  for (const FeatureSchema::Slot& slot : schema_->slots()) {
    if (slot.in_deep) deep.push_back(EmbeddingInput(slot.name));
  }
  // Embeddings first, then numbers, as in the deep input (WideDeepShape).
  for (const FeatureSchema::Numeric& numeric : schema_->numerics()) {
    const std::string number = NumberInput(numeric.name);
    if (numeric.in_deep) deep.push_back(number);
    if (numeric.in_wide) wide.push_back(number);
  }
  std::map<std::string, std::vector<std::string>> inputs = {{"deep", std::move(deep)},
                                                            {"wide", std::move(wide)}};
  std::map<uint64_t, std::string> rows;  // by the first row
  for (const FeatureSchema::Slot& slot : schema_->slots()) {
    if (slot.rows.empty()) continue;
    rows[slot.rows.begin] =
        absl::StrCat("the ", slot.rows.size(), " rows of ", QuotedCell(slot.name));
  }
  // Rows of dense tables belong to positions as well.
  for (auto& [begin, text] : rows) inputs["embedding"].push_back(std::move(text));
  return inputs;
}

std::optional<std::map<std::string, ModelSpec::InputTable>> WideDeepSpec::input_tables() const {
  std::map<std::string, InputTable> tables;
  const auto add_numbers = [&](const std::vector<uint32_t>& numbers, InputTable* table) {
    for (const uint32_t n : numbers) {
      const FeatureSchema::Numeric& number = schema_->numerics()[n];
      // Those of a vector are "NAME[i]".
      std::string feature = number.name;
      if (number.dim > 0) feature.resize(feature.rfind('['));
      table->inputs.push_back({NumberInput(number.name), std::move(feature), 1});
    }
  };
  if (shape_.deep()) {
    InputTable& deep = tables["deep/0/weight"];
    for (size_t s = 0; s < shape_.slots.size(); ++s) {
      const std::string& name = schema_->slots()[s].name;
      if (shape_.slots[s].deep)
        deep.inputs.push_back({EmbeddingInput(name), name, shape_.embedding_dim(shape_.slots[s])});
    }
    add_numbers(shape_.deep_numeric, &deep);
  }
  if (!shape_.wide_numeric.empty()) add_numbers(shape_.wide_numeric, &tables["wide/weight"]);
  if (!deep_rows_.empty()) tables["embedding"] = RowsOfFeatures(deep_rows_);
  if (!wide_rows_.empty()) tables["wide/embedding"] = RowsOfFeatures(wide_rows_);
  return tables;
}

ModelSpec::InputTable WideDeepSpec::RowsOfFeatures(const RowRange& range) const {
  std::map<uint64_t, InputRows> rows;  // by the first row
  for (const FeatureSchema::Slot& slot : schema_->slots()) {
    if (slot.rows.empty() || slot.rows.begin < range.begin || slot.rows.end > range.end) continue;
    rows[slot.rows.begin] = {absl::StrCat("the rows of ", QuotedCell(slot.name)), slot.name,
                             slot.rows.size()};
  }
  InputTable table;
  table.embeddings = true;
  for (auto& [begin, input] : rows) table.inputs.push_back(std::move(input));
  return table;
}

void WideDeepSpec::AddDense(const std::string& name, std::vector<uint64_t> shape,
                            Initializer initializer, const OptimizerConfig& optimizer) {
  TableConfig table;
  table.set_name(name);
  table.set_kind(TableConfig::DENSE);
  for (uint64_t n : shape) table.add_shape(n);
  *table.mutable_initializer() = std::move(initializer);
  *table.mutable_optimizer() = optimizer;
  dense_tables_.push_back(tables_.size());
  tables_.push_back(std::move(table));
}

void WideDeepSpec::DeriveRows() {
  // The slots' rows begin with those of the deep part and end with those of the wide part
  // (FeatureSchema::Slot).
  const auto extend = [](const RowRange& rows, RowRange* range) {
    if (rows.empty()) return;
    if (range->empty()) *range = rows;
    range->begin = std::min(range->begin, rows.begin);
    range->end = std::max(range->end, rows.end);
  };
  for (const FeatureSchema::Slot& slot : schema_->slots()) {
    if (slot.in_deep && shape_.deep()) extend(slot.rows, &deep_rows_);
    if (slot.in_wide && shape_.wide_columns[slot.table]) extend(slot.rows, &wide_rows_);
  }
}

void WideDeepSpec::AddSparse(const JobConfig& job, size_t t) {
  const OptimizersConfig& optimizers = job.optimizers();
  TableConfig table;
  table.set_name(plan_.tables[t].name);
  table.set_kind(TableConfig::SPARSE);
  // One row has the values of both parts, so that a key is pulled and pushed once.
  if (shape_.wide_columns[t]) {
    ColumnGroup* wide = table.add_columns();
    wide->set_name("wide");
    wide->set_dim(1);
    *wide->mutable_initializer() = Constant(0);
    *wide->mutable_optimizer() = Optimizer(optimizers, optimizers.has_wide(), optimizers.wide());
  }
  if (shape_.embedding_dims[t] > 0) {
    ColumnGroup* embedding = table.add_columns();
    embedding->set_name("embedding");
    embedding->set_dim(shape_.embedding_dims[t]);
    *embedding->mutable_initializer() = EmbeddingInitializer(job.model().wide_deep());
    *embedding->mutable_optimizer() =
        Optimizer(optimizers, optimizers.has_embedding(), optimizers.embedding());
  }
  sparse_tables_.push_back(tables_.size());
  tables_.push_back(std::move(table));
}

void WideDeepSpec::AddRows(const JobConfig& job) {
  const OptimizersConfig& optimizers = job.optimizers();
  if (!deep_rows_.empty()) {
    AddDense("embedding", {deep_rows_.size(), shape_.embedding_dims[0]},
             EmbeddingInitializer(job.model().wide_deep()),
             Optimizer(optimizers, optimizers.has_embedding(), optimizers.embedding()));
  }
  if (!wide_rows_.empty()) {
    AddDense("wide/embedding", {wide_rows_.size(), 1}, Constant(0),
             Optimizer(optimizers, optimizers.has_wide(), optimizers.wide()));
  }
}

void WideDeepSpec::DeriveTables(const JobConfig& job) {
  const OptimizersConfig& optimizers = job.optimizers();
  // A network makes the gradients of its rows last, so their tables come first
  // (gradient_buckets.h).
  if (!deep_rows_.empty() || !wide_rows_.empty()) {
    AddRows(job);
  } else {
    for (size_t t = 0; t < shape_.tables(); ++t) AddSparse(job, t);
  }
  const OptimizerConfig dense = Optimizer(optimizers, optimizers.has_dense(), optimizers.dense());
  const std::vector<size_t> widths = shape_.widths();
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    const std::string layer = absl::StrCat("deep/", l);
    // Weight and bias in turn: networks find layer l at tensors 2 l and 2 l + 1.
    AddDense(layer + "/weight", {widths[l], widths[l + 1]}, HeUniform(widths[l]), dense);
    AddDense(layer + "/bias", {widths[l + 1]}, Constant(0), dense);
  }
  if (!shape_.wide_numeric.empty())
    AddDense("wide/weight", {shape_.wide_numeric.size()}, Constant(0), dense);
  if (shape_.wide_bias) AddDense("wide/bias", {1}, Constant(0), dense);
}

absl::Status WideDeepSpec::CheckNames() const {
  std::map<std::string, std::string> dense;  // by the name that files have: '/' is '.' there
  for (const int t : dense_tables_)
    dense.emplace(absl::StrReplaceAll(tables_[t].name(), {{"/", "."}}), tables_[t].name());
  for (size_t t = 0; t < sparse_tables_.size(); ++t) {
    const auto same = dense.find(tables_[sparse_tables_[t]].name());
    if (same == dense.end()) continue;
    const SparseTablePlan::Table& table = plan_.tables[t];
    return AtField(table.named_by,
                   absl::InvalidArgumentError(absl::StrCat(
                       "feature \"", table.features[0], "\" has rows in a sparse table \"",
                       table.name, "\", whose files would have the names of those of \"",
                       same->second, "\", a dense table; give it another `table`")));
  }
  return absl::OkStatus();
}

ModelEntry WideDeepModel() {
  return {"wide_deep", std::make_shared<WideDeepRules>(), &WideDeepSpec::Create};
}

}  // namespace sluice
