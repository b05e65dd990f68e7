#include "model/program/program_spec.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/optimizer/frozen_rule.h"
#include "common/optimizer/update_rule.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/message_differencer.h"
#include "model/features/cell.h"
#include "model/program/program_rules.h"

namespace sluice {
namespace {

// `own` if the program declares it, else that of the job, with defaults filled in.
OptimizerConfig RuleOf(bool has_own, const OptimizerConfig& own, bool has_part,
                       const OptimizerConfig& part, const OptimizerConfig& all) {
  return WithDefaults(has_own ? own : has_part ? part : all);
}

OptimizerConfig RuleOfBuffers() {
  OptimizerConfig rule;
  rule.mutable_sgd();
  rule.set_learning_rate(1);
  return WithDefaults(rule);
}

// tables { ... } of a buffer would only change what ResetBuffers puts back.
absl::Status CheckOverrides(const JobConfig& job) {
  for (int i = 0; i < job.tables_size(); ++i) {
    for (const ProgramConfig::Parameter& parameter : job.model().program().parameters()) {
      if (!parameter.buffer() || parameter.name() != job.tables(i).name()) continue;
      if (!job.tables(i).has_optimizer() && job.tables(i).wire_type() == TableConfig::F32) continue;
      const std::string path = absl::StrCat("tables[", i, "]");
      return AtField(path,
                     absl::InvalidArgumentError(absl::StrCat(
                         path, ": '", parameter.name(),
                         "' is a buffer, which is averaged in float32 and takes no optimizer; "
                         "remove optimizer and wire_type")));
    }
  }
  return absl::OkStatus();
}

// The declaration without digest and values.
ProgramConfig DeclaredBy(const JobConfig& job) {
  ProgramConfig declared = job.model().program();
  declared.clear_digest();
  declared.clear_initial_values();
  return declared;
}

std::string BytesOf(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  // The order of the fields is part of the digest.
  out.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&out);
  out.Trim();
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSpec>> ProgramSpec::Create(const JobConfig& job) {
  std::unique_ptr<ProgramSpec> model(new ProgramSpec);
  const FeatureUse use = ProgramUseOf(job);
  SLUICE_ASSIGN_OR_RETURN(model->schema_, FeatureSchema::Create(job, use));
  // The schema's slots refer to the tables of the same plan.
  SLUICE_ASSIGN_OR_RETURN(const SparseTablePlan plan, PlanSparseTables(job, use));
  model->DeriveShape(job, plan);
  model->DeriveTables(job);
  SLUICE_RETURN_IF_ERROR(CheckOverrides(job));
  SLUICE_RETURN_IF_ERROR(CompleteTables(job, &model->tables_));
  model->ResetBuffers();
  return model;
}

void ProgramSpec::DeriveShape(const JobConfig& job, const SparseTablePlan& plan) {
  const ProgramConfig& program = job.model().program();
  const std::vector<FeatureSchema::Numeric>& numbers = schema_->numerics();
  for (size_t i = 0; i < numbers.size(); i += shape_.numbers.back().size()) {
    // "NAME[0]" of a vector.
    std::string feature = numbers[i].name;
    if (numbers[i].dim > 0) feature.resize(feature.size() - std::strlen("[0]"));
    shape_.numbers.push_back({std::move(feature), numbers[i].dim});
  }
  for (const FeatureSchema::Slot& slot : schema_->slots())
    shape_.slots.push_back({slot.name, slot.table, slot.pooling == CategoricalFeature::MEAN});
  for (const SparseTablePlan::Table& from : plan.tables) {
    ProgramShape::Table to;
    to.name = from.name;
    for (const uint32_t c : from.collections) {
      to.columns.push_back({c, to.dim, program.collections(c).dim()});
      to.dim += program.collections(c).dim();
    }
    shape_.tables.push_back(std::move(to));
  }
  for (const ProgramConfig::Collection& from : program.collections()) {
    ProgramShape::Collection to;
    to.name = from.name();
    to.dim = from.dim();
    for (const std::string& feature : from.features()) {
      const auto slot = std::find_if(shape_.slots.begin(), shape_.slots.end(),
                                     [&](const auto& s) { return s.feature == feature; });
      to.slots.push_back(static_cast<uint32_t>(slot - shape_.slots.begin()));
    }
    shape_.collections.push_back(std::move(to));
  }
  for (const ProgramConfig::Parameter& from : program.parameters()) {
    ProgramShape::Parameter to;
    to.name = from.name();
    to.shape.assign(from.shape().begin(), from.shape().end());
    to.buffer = from.buffer();
    to.frozen = IsFrozen(from.optimizer());
    to.elements = 1;
    for (const uint64_t n : to.shape) to.elements *= n;
    shape_.parameters.push_back(std::move(to));
  }
}

void ProgramSpec::DeriveTables(const JobConfig& job) {
  const ProgramConfig& program = job.model().program();
  const OptimizersConfig& optimizers = job.optimizers();
  for (const ProgramShape::Table& from : shape_.tables) {
    TableConfig table;
    table.set_name(from.name);
    table.set_kind(TableConfig::SPARSE);
    for (const ProgramShape::Columns& columns : from.columns) {
      const ProgramConfig::Collection& collection = program.collections(columns.collection);
      ColumnGroup* const group = table.add_columns();
      group->set_name(collection.name());
      group->set_dim(collection.dim());
      *group->mutable_initializer() = collection.initializer();
      *group->mutable_optimizer() =
          RuleOf(collection.has_optimizer(), collection.optimizer(), optimizers.has_embedding(),
                 optimizers.embedding(), optimizers.all());
    }
    sparse_tables_.push_back(static_cast<int>(tables_.size()));
    tables_.push_back(std::move(table));
  }
  for (const ProgramConfig::Parameter& parameter : program.parameters()) {
    TableConfig table;
    table.set_name(parameter.name());
    table.set_kind(TableConfig::DENSE);
    *table.mutable_shape() = parameter.shape();
    // The program brings the values (initial_values).
    table.mutable_initializer()->set_constant(0);
    *table.mutable_optimizer() =
        RuleOf(parameter.has_optimizer(), parameter.optimizer(), optimizers.has_dense(),
               optimizers.dense(), optimizers.all());
    dense_tables_.push_back(static_cast<int>(tables_.size()));
    tables_.push_back(std::move(table));
  }
}

void ProgramSpec::ResetBuffers() {
  for (size_t i = 0; i < shape_.parameters.size(); ++i) {
    if (shape_.parameters[i].buffer)
      *tables_[dense_tables_[i]].mutable_optimizer() = RuleOfBuffers();
  }
}

std::map<std::string, std::vector<std::string>> ProgramSpec::ordered_inputs() const {
  std::map<std::string, std::vector<std::string>> inputs;
  for (const FeatureSchema::Numeric& number : schema_->numerics())
    inputs["numbers"].push_back(absl::StrCat("the number of ", QuotedCell(number.name)));
  for (const ProgramShape::Collection& collection : shape_.collections) {
    std::vector<std::string>& features = inputs[absl::StrCat("collection ", collection.name)];
    for (const uint32_t slot : collection.slots)
      features.push_back(absl::StrCat("the rows of ", QuotedCell(shape_.slots[slot].feature)));
  }
  return inputs;
}

std::string ProgramDigest(const JobConfig& job) {
  std::string bytes = BytesOf(DeclaredBy(job));
  for (const Feature& feature : job.features()) {
    const std::string one = BytesOf(feature);
    // With its length, so that no two lists of features are the same bytes.
    absl::StrAppend(&bytes, one.size(), ":", one);
  }
  return Sha256Hex(bytes);
}

std::string FirstDifference(const JobConfig& here, const JobConfig& of_job) {
  JobConfig own, other;
  *own.mutable_model()->mutable_program() = DeclaredBy(here);
  *other.mutable_model()->mutable_program() = DeclaredBy(of_job);
  for (JobConfig* job : {&own, &other}) ProgramRules().FillDefaults(job);
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(own.model().program(), other.model().program())) return "";
  return differences.substr(0, differences.find('\n'));
}

ModelEntry ProgramModel() {
  return {"program", std::make_shared<ProgramRules>(), &ProgramSpec::Create};
}

}  // namespace sluice
