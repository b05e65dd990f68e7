#include "model/model.h"

#include <algorithm>

#include "model/wide_deep_model.h"

namespace sluice {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<Model>> (*)(const JobConfig&);

// The registry: one line a model.
struct Registered {
  ModelConfig::ModelCase name;
  Factory create;
};
constexpr Registered kModels[] = {
    {ModelConfig::kWideDeep, CreateWideDeepModel},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const JobConfig& job) {
  for (const Registered& model : kModels) {
    if (model.name == job.model().model_case()) return model.create(job);
  }
  return absl::InvalidArgumentError(
      "model: no model is set; write e.g. model { wide_deep { hidden_units: [100, 50] } }");
}

void ResolveShards(uint32_t num_pservers, google::protobuf::RepeatedPtrField<TableConfig>* tables) {
  for (TableConfig& table : *tables) {
    if (table.kind() == TableConfig::SPARSE && table.num_shards() == 0) {
      table.set_num_shards(std::max<uint32_t>(4 * num_pservers, 16));
    }
  }
}

}  // namespace sluice
