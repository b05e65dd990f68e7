#include "model/model_spec.h"

#include <algorithm>

namespace sluice {

#define SLUICE_MODEL(Name) \
  absl::StatusOr<std::unique_ptr<ModelSpec>> Create##Name##Spec(const JobConfig& job);
#include "model/models.inc"
#undef SLUICE_MODEL

absl::StatusOr<std::unique_ptr<ModelSpec>> ModelSpec::Create(const JobConfig& job) {
  switch (job.model().model_case()) {
#define SLUICE_MODEL(Name)   \
  case ModelConfig::k##Name: \
    return Create##Name##Spec(job);
#include "model/models.inc"
#undef SLUICE_MODEL
    default:
      return absl::InvalidArgumentError(
          "model: no model is set; write e.g. model { wide_deep { hidden_units: [100, 50] } }");
  }
}

void ResolveShards(uint32_t num_pservers, google::protobuf::RepeatedPtrField<TableConfig>* tables) {
  for (TableConfig& table : *tables) {
    if (table.kind() == TableConfig::SPARSE && table.num_shards() == 0) {
      table.set_num_shards(std::max<uint32_t>(4 * num_pservers, 16));
    }
  }
}

}  // namespace sluice
